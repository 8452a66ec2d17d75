//! A private Redis for the demo: a free port of this machine, nothing kept on disk, gone when dropped.

use std::{
    env, fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{self as this, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    process::{self, Group},
    setup,
};

const START_LIMIT: Duration = Duration::from_secs(10);
/// A free port may be taken by somebody else before the server binds it.
const PORTS_TRIED: u32 = 5;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Group,
    address: SocketAddr,
    folder: PathBuf,
}

impl Server {
    pub(crate) fn start() -> Result<Server> {
        let program = setup::redis_server().context("`redis-server` is not on the PATH")?;
        let folder = env::temp_dir().join(format!("redlatch-demo-{}", this::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for _ in 0..PORTS_TRIED {
            let address = free_address()?;
            let mut command = Command::new(&program);
            command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
            command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&folder);
            let process = Group::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
            let server = Server { process, address, folder: folder.clone() };
            if server.is_ready()? {
                return Ok(server);
            }
        }
        bail!("{} ended at its start {PORTS_TRIED} times; run it by hand to see why", program.display());
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Waits for the server; false when it has ended instead.
    fn is_ready(&self) -> Result<bool> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            process::check_interrupt()?;
            if self.process.has_ended()? {
                return Ok(false);
            }
            if self.answers() {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the private Redis at {} does not answer after {START_LIMIT:?}", self.address);
    }

    /// Whether this very process answers on the port, and no other server that was quicker to bind it.
    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"INFO server\r\nQUIT\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let expected = format!("process_id:{}", self.process.id());
        ask().is_ok_and(|answer| answer.lines().any(|line| line == expected))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended before its folder goes; there is nobody to tell of a failure here, and nothing depends on it.
        let _ = self.process.finish();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    listener.local_addr().context("no free port")
}
