//! A server that speaks Redis' protocol but answers as the test wants. For replies that no Redis gives.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The scripts, as the server sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Acquire,
    ForceRelease,
    Query,
    Release,
    Renew,
    Transfer,
}

pub(crate) struct Fake {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Script {
    replies: HashMap<Asked, &'static str>,
    asked: HashMap<Asked, usize>,
    connections: usize,
}

impl Fake {
    /// Grants what is asked for; each other reply as given.
    pub(crate) async fn with(replies: &[(Asked, &'static str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut script = Script::default();
        script.replies.extend([
            (Asked::Acquire, "$-1\r\n"),
            (Asked::ForceRelease, ":1\r\n"),
            (Asked::Query, ":1\r\n"),
            (Asked::Release, ":1\r\n"),
            (Asked::Renew, "*1\r\n:1\r\n"),
            (Asked::Transfer, "*2\r\n:1\r\n:0\r\n"),
        ]);
        script.replies.extend(replies.iter().copied());
        let script = Arc::new(Mutex::new(script));
        let shared = script.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.lock().unwrap().connections += 1;
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, script, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn answer(&self, asked: Asked, reply: &'static str) {
        self.script.lock().unwrap().replies.insert(asked, reply);
    }

    pub(crate) fn asked(&self, what: Asked) -> usize {
        self.script.lock().unwrap().asked.get(&what).copied().unwrap_or(0)
    }

    pub(crate) fn connections(&self) -> usize {
        self.script.lock().unwrap().connections
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, script: Arc<Mutex<Script>>) {
    let (mut input, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut chunk).await {
        input.extend_from_slice(&chunk[..n]);
        let mut output = String::new();
        while let Some((command, length)) = parse(&input) {
            input.drain(..length);
            output.push_str(&reply(&command, &script));
        }
        if stream.write_all(output.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn reply(command: &[String], script: &Mutex<Script>) -> String {
    let word = command[0].to_uppercase();
    let asked = match word.as_str() {
        "CLIENT" if command[1].eq_ignore_ascii_case("ID") => {
            return format!(":{}\r\n", script.lock().unwrap().connections);
        }
        "CLIENT" if command[1].eq_ignore_ascii_case("KILL") => return ":1\r\n".to_owned(),
        "CLIENT" => return "+OK\r\n".to_owned(),
        "INFO" => return "$12\r\nrun_id:abc\r\n\r\n".to_owned(),
        "HELLO" => return "%1\r\n+proto\r\n:3\r\n".to_owned(),
        "SUBSCRIBE" => return format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{}\r\n:1\r\n", command[1].len(), command[1]),
        "UNSUBSCRIBE" => {
            return format!(">3\r\n$11\r\nunsubscribe\r\n${}\r\n{}\r\n:0\r\n", command[1].len(), command[1]);
        }
        "EVALSHA" => which(&command[1]),
        _ => Asked::Query,
    };
    let mut script = script.lock().unwrap();
    *script.asked.entry(asked).or_default() += 1;
    script.replies[&asked].to_owned()
}

fn which(digest: &str) -> Asked {
    const SOURCES: [(Asked, &str); 5] = [
        (Asked::Acquire, include_str!("../../lua/lock_acquire.lua")),
        (Asked::ForceRelease, include_str!("../../lua/lock_force_release.lua")),
        (Asked::Release, include_str!("../../lua/lock_release.lua")),
        (Asked::Renew, include_str!("../../lua/lock_renew.lua")),
        (Asked::Transfer, include_str!("../../lua/lock_transfer.lua")),
    ];
    let found = SOURCES.iter().find(|(_, source)| redis::Script::new(source).get_hash() == digest);
    found.expect("a script of the crate").0
}

/// The first command of the input and its length, once it is complete.
fn parse(input: &[u8]) -> Option<(Vec<String>, usize)> {
    let (count, mut at) = header(input, 0, b'*')?;
    let mut command = Vec::new();
    for _ in 0..count {
        let (length, start) = header(input, at, b'$')?;
        command.push(String::from_utf8_lossy(input.get(start..start + length)?).into_owned());
        at = start + length + 2;
    }
    (at <= input.len()).then_some((command, at))
}

/// The number in the line at `at`, and where the next line begins.
fn header(input: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let rest = input.get(at..)?;
    let length = rest.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(rest[0], kind, "a command is an array of strings");
    let number = std::str::from_utf8(&rest[1..length]).unwrap().parse().unwrap();
    Some((number, at + length + 2))
}
