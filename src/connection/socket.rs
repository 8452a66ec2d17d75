//! Sockets with the options that the barrier and the detection of dead peers rest on.

use std::{io, time::Duration};

use redis::{
    RedisError,
    io::tcp::socket2::{SockRef, TcpKeepalive},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::config::Address;

/// A dead peer is noticed within this time while data is unacknowledged, and about as fast when idle.
const SILENCE: Duration = Duration::from_secs(5);

/// A stream of bytes to a server.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

pub(super) async fn connect(address: &Address) -> Result<Box<dyn Socket>, RedisError> {
    Ok(match address {
        Address::Tcp(host, port) => Box::new(tcp(host, *port).await?),
        #[cfg(unix)]
        Address::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
        #[cfg(not(unix))]
        Address::Unix(_) => {
            let why = "Unix sockets do not exist on this system";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why).into());
        }
    })
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let options = SockRef::from(&stream);
    // Closing throws away what was not sent yet, and tells the server at once.
    options.set_linger(Some(Duration::ZERO))?;
    let probes = TcpKeepalive::new().with_time(SILENCE).with_interval(Duration::from_secs(1));
    options.set_tcp_keepalive(&probes)?;
    #[cfg(any(target_os = "android", target_os = "linux"))]
    options.set_tcp_user_timeout(Some(SILENCE))?;
    Ok(stream)
}
