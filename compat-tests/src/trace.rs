use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::{Failure, Outcome, Peer, SharedRedis};

/// Who sent a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    /// The Java peer.
    Java,
    /// A client of this crate: every connection that is neither the peer's nor the test's own.
    Rust,
    /// A script, whoever had sent it.
    Script,
}

/// A command as the server ran it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Command {
    /// Who sent it.
    pub source: Source,
    /// The command, in lower case, and its arguments; bytes that are not UTF-8 are replaced.
    pub words: Vec<String>,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.source, self.words.join(" "))
    }
}

/// A recording of what the server runs (`MONITOR`), read in sections.
#[derive(Debug)]
pub struct Trace {
    monitor: TcpStream,
    lines: UnboundedReceiver<String>,
    admin: MultiplexedConnection,
    sections: u64,
}

impl Trace {
    /// Begins the recording.
    pub async fn start(redis: &SharedRedis) -> Outcome<Self> {
        let monitor = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port()))?;
        let mut writer = &monitor;
        writer.write_all(b"MONITOR\r\n")?;
        let (sender, lines) = unbounded_channel();
        let reader = BufReader::new(monitor.try_clone()?);
        thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut trace = Self { monitor, lines, admin: redis.admin(), sections: 0 };
        // Its `+OK`: from here on it hears everything.
        trace.line().await?;
        trace.section().await?;
        Ok(trace)
    }

    /// What the server ran since the last section, without the commands of the test's own connections.
    ///
    /// A party whose connections have ended meanwhile is not told from Rust.
    pub async fn section(&mut self) -> Outcome<Vec<Command>> {
        self.sections += 1;
        let end = format!("end-of-section-{}", self.sections);
        redis::cmd("ECHO").arg(&end).exec_async(&mut self.admin).await?;
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            let is_end = line.contains(&end);
            lines.push(line);
            if is_end {
                break;
            }
        }
        let names = self.client_names().await?;
        Ok(lines.iter().filter_map(|line| command(line, &names)).collect())
    }

    async fn line(&mut self) -> Outcome<String> {
        let line = timeout(Duration::from_secs(10), self.lines.recv()).await;
        line.ok().flatten().ok_or_else(|| Failure::new("MONITOR fell silent"))
    }

    /// Address to name of every connection.
    async fn client_names(&mut self) -> Outcome<HashMap<String, String>> {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut self.admin).await?;
        let field = |line: &str, name: &str| {
            line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        Ok(list.lines().map(|line| (field(line, "addr="), field(line, "name="))).collect())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Ends the reading thread; fails only when the server has ended it already.
        let _ = self.monitor.shutdown(Shutdown::Both);
    }
}

/// Lines read `+1796061047.515779 [0 127.0.0.1:40112] "evalsha" "ab.."`, from scripts `[0 lua]`.
fn command(line: &str, names: &HashMap<String, String>) -> Option<Command> {
    let (_, rest) = line.split_once('[')?;
    let (origin, words) = rest.split_once("] ")?;
    let (_, address) = origin.split_once(' ')?;
    let source = match names.get(address).map(String::as_str) {
        _ if address == "lua" => Source::Script,
        Some(SharedRedis::ADMIN) => return None,
        Some(Peer::CLIENT_NAME) => Source::Java,
        _ => Source::Rust,
    };
    let mut words = unquoted(words);
    words.first_mut()?.make_ascii_lowercase();
    Some(Command { source, words })
}

/// Words in double quotes, with `\"`, `\\`, `\n`, `\r`, `\t`, `\a`, `\b` and `\xHH` inside.
fn unquoted(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (&mut word, byte) {
            (None, b'"') => word = Some(Vec::new()),
            (None, _) => {}
            (Some(open), b'"') => {
                words.push(String::from_utf8_lossy(open).into_owned());
                word = None;
            }
            (Some(open), b'\\') => open.extend(escaped(&mut bytes)),
            (Some(open), other) => open.push(other),
        }
    }
    words
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match bytes.next()? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 0x07,
        b'b' => 0x08,
        b'x' => {
            let digits = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
        }
        plain => plain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_line_is_read_with_its_escapes() {
        let names = HashMap::from([("127.0.0.1:5".to_owned(), "java".to_owned())]);
        let line = r#"+1.5 [0 127.0.0.1:5] "SET" "a \"q\" [1] \\" "\xc3\xa9\r""#;
        let words = ["set", "a \"q\" [1] \\", "\u{e9}\r"].map(str::to_owned).to_vec();
        assert_eq!(command(line, &names), Some(Command { source: Source::Java, words }));
    }

    #[test]
    fn commands_inside_scripts_are_told_apart() {
        let line = r#"+1.5 [0 lua] "hset" "k" "f" "1""#;
        assert_eq!(command(line, &HashMap::new()).map(|command| command.source), Some(Source::Script));
    }

    #[test]
    fn commands_of_the_tests_own_connections_are_left_out() {
        let names = HashMap::from([("127.0.0.1:5".to_owned(), "admin".to_owned())]);
        assert_eq!(command(r#"+1.5 [0 127.0.0.1:5] "PING""#, &names), None);
    }
}
