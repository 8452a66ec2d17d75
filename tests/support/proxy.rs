//! A small TCP proxy that can lose or hold back what passes through it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

/// Switches of a proxy; each holds for all its connections, or for those that exist when it is thrown.
#[derive(Default)]
pub struct Switches {
    /// Replies are read from the server and thrown away.
    drop_replies: AtomicBool,
    /// Commands are held back until released; in order.
    hold_commands: AtomicBool,
    /// Replies are held back until released; in order.
    hold_replies: AtomicBool,
    /// Nothing passes in either direction, on no connection, new or old; nothing is closed.
    silent: AtomicBool,
    /// How often something was held back on its way to the server.
    held: AtomicU64,
    /// Connections accepted from now on are not affected by the switches.
    exempt_from: AtomicU64,
    release: Notify,
    accepted: AtomicU64,
    cut: Notify,
}

pub struct Proxy {
    address: SocketAddr,
    switches: Arc<Switches>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let switches = Arc::new(Switches { exempt_from: AtomicU64::new(u64::MAX), ..Switches::default() });
        let shared = switches.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
                let switches = shared.clone();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                        serve(client, server, switches, number).await;
                    }
                });
            }
        });
        Self { address, switches, task }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From now on the replies on the present connections are lost.
    pub fn lose_replies(&self) {
        self.exempt_new_connections();
        self.switches.drop_replies.store(true, Ordering::SeqCst);
    }

    /// From now on commands on the present connections are held back.
    pub fn hold_commands(&self) {
        self.exempt_new_connections();
        self.switches.hold_commands.store(true, Ordering::SeqCst);
    }

    /// From now on replies on the present connections are held back.
    pub fn hold_replies(&self) {
        self.exempt_new_connections();
        self.switches.hold_replies.store(true, Ordering::SeqCst);
    }

    /// The network is gone: nothing passes any more, and nobody is told.
    pub fn fall_silent(&self) {
        self.switches.silent.store(true, Ordering::SeqCst);
    }

    /// How often something was held back on its way to the server.
    pub fn held(&self) -> u64 {
        self.switches.held.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.switches.accepted.load(Ordering::SeqCst)
    }

    /// Sends on what was held back, even if its client has gone away.
    pub fn let_go(&self) {
        self.switches.hold_commands.store(false, Ordering::SeqCst);
        self.switches.hold_replies.store(false, Ordering::SeqCst);
        self.switches.drop_replies.store(false, Ordering::SeqCst);
        self.switches.silent.store(false, Ordering::SeqCst);
        self.switches.release.notify_waiters();
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.switches.cut.notify_waiters();
    }

    fn exempt_new_connections(&self) {
        self.switches.exempt_from.store(self.switches.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(client: TcpStream, server: TcpStream, switches: Arc<Switches>, number: u64) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let affected = |s: &Switches| number < s.exempt_from.load(Ordering::SeqCst);
    let holds_commands =
        |s: &Switches| s.silent.load(Ordering::SeqCst) || s.hold_commands.load(Ordering::SeqCst) && affected(s);
    let holds_replies =
        |s: &Switches| s.silent.load(Ordering::SeqCst) || s.hold_replies.load(Ordering::SeqCst) && affected(s);
    let up = async {
        let mut buffer = vec![0; 65536];
        while let Ok(n) = from_client.read(&mut buffer).await {
            // What was held back goes out even when the client has closed meanwhile: a network does the same.
            if holds_commands(&switches) {
                switches.held.fetch_add(1, Ordering::SeqCst);
                until_released(&switches, holds_commands).await;
            }
            if n == 0 || to_server.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 65536];
        while let Ok(n) = from_server.read(&mut buffer).await {
            until_released(&switches, holds_replies).await;
            if n == 0 {
                break;
            }
            if switches.drop_replies.load(Ordering::SeqCst) && affected(&switches) {
                continue;
            }
            if to_client.write_all(&buffer[..n]).await.is_err() {
                // The client is gone; the server may still have to run what is held back.
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
        () = switches.cut.notified() => {}
    }
}

async fn until_released(switches: &Switches, held: impl Fn(&Switches) -> bool) {
    while held(switches) {
        let released = switches.release.notified();
        tokio::pin!(released);
        released.as_mut().enable();
        if held(switches) {
            released.await;
        }
    }
}
