//! Child processes that never outlive the xtask: each in a process group of its own, killed when dropped.

use std::{
    ffi::OsStr,
    fmt,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a wait looks at the signal flag and at the child.
const POLL: Duration = Duration::from_millis(10);
/// How long the output of an ended child is still read: somebody else may hold its pipe open.
const DRAIN: Duration = Duration::from_secs(2);

/// Longer than any run, and still within the range of the clock.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(60 * 60 * 24 * 365);

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on Ctrl-C, TERM and HUP set a flag that every wait of this module looks at.
pub(crate) fn catch_signals() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag)).context("cannot install a signal handler")?;
    }
    Ok(())
}

/// Fails once a signal asked for the end, so that `?` unwinds and every [`Group`] is dropped.
pub(crate) fn check_interrupt() -> Result<()> {
    if INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// A child and all that it starts.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    name: String,
    reaped: bool,
}

impl Group {
    /// Starts `command` in a process group of its own. Standard input is empty unless the command says otherwise before.
    pub(crate) fn spawn(command: &mut Command) -> Result<Group> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Group { child, name, reaped: false })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The pipes, to be taken out.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether the child has ended. It stays a zombie, so that its process group number cannot be given to anybody else
    /// before [`Group::finish`] or drop has killed what is left of the group.
    pub(crate) fn has_ended(&self) -> Result<bool> {
        if self.reaped {
            return Ok(true);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let state =
            waitid(WaitId::Pid(self.pid()?), options).with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(state.is_some())
    }

    /// Waits until the child has ended. `None` when it took longer than `limit`; it then still runs.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        while !self.has_ended()? {
            check_interrupt()?;
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
        self.finish().map(Some)
    }

    /// Kills whatever is left of the group and gives the exit status of the child.
    pub(crate) fn finish(&mut self) -> Result<ExitStatus> {
        if !self.reaped {
            // The group is gone already when the child was the last of it.
            let _ = kill_process_group(self.pid()?, Signal::KILL);
        }
        let status = self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        self.reaped = true;
        Ok(status)
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(self.child.id().cast_signed()).context("a child has pid 0")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.finish();
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself.
    With(ExitStatus),
    /// It was killed at its time limit.
    TimedOut,
}

impl Ended {
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Ended::With(status) if status.success())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::With(status) => status.fmt(f),
            Ended::TimedOut => f.write_str("killed at its time limit"),
        }
    }
}

/// Runs a command with empty standard input and everything printed as it is; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = Group::spawn(command.stdin(Stdio::null()))?.wait(NO_LIMIT)?.context("waited for ever")?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs a command with empty standard input and hands each line of its standard output to `on_line`.
pub(crate) fn run_lines(command: &mut Command, limit: Duration, mut on_line: impl FnMut(&str)) -> Result<Ended> {
    let mut group = Group::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let output = group.child().stdout.take().context("standard output was not piped")?;
    let lines = lines_of(output);
    let deadline = Instant::now() + limit;
    let mut drain_until = None;
    loop {
        match lines.recv_timeout(POLL) {
            Ok(line) => on_line(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if group.has_ended()? => break,
            Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
        }
        check_interrupt()?;
        let now = Instant::now();
        if now >= deadline {
            return Ok(Ended::TimedOut);
        }
        if drain_until.is_none() && group.has_ended()? {
            group.finish()?;
            drain_until = Some(now + DRAIN);
        }
        if drain_until.is_some_and(|until| now >= until) {
            break;
        }
    }
    group.finish().map(Ended::With)
}

/// Runs a command quietly and gives its standard output; an error with all that it said unless it succeeds.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::spawn(command)?;
    let (output, errors) = (group.child().stdout.take(), group.child().stderr.take());
    let output = output.map(lines_of).context("standard output was not piped")?;
    let errors = errors.map(lines_of).context("standard error was not piped")?;
    let status = group.wait(NO_LIMIT)?.context("waited for ever")?;
    let (output, errors) = (all_lines(&output), all_lines(&errors));
    if !status.success() {
        bail!("`{}` failed: {status}\n{output}{errors}", shown(command));
    }
    Ok(output)
}

/// What an ended child has printed.
fn all_lines(lines: &mpsc::Receiver<String>) -> String {
    let deadline = Instant::now() + DRAIN;
    let mut text = String::new();
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Reads a pipe line by line in a thread of its own, so that the reader can wait with a bound.
pub(crate) fn lines_of(pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(pipe.read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn is_alive(pid: &str) -> bool {
        // A killed process may stay a zombie for as long as nobody reaps it: that counts as gone.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
    }

    /// A signal is delivered soon, not at once.
    fn dies(pid: &str) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_alive(pid) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        !is_alive(pid)
    }

    #[test]
    fn lines_arrive_in_order_and_the_status_is_told() {
        let mut seen = Vec::new();
        let ended = run_lines(&mut sh("echo one; echo two; exit 3"), Duration::from_secs(20), |line| {
            seen.push(line.to_owned());
        });
        assert_eq!(seen, ["one", "two"]);
        assert!(matches!(ended, Ok(Ended::With(status)) if status.code() == Some(3)));
    }

    #[test]
    fn what_a_child_leaves_behind_is_killed_with_its_group() {
        let mut seen = Vec::new();
        let ended = run_lines(&mut sh("sleep 1000 & echo $!"), Duration::from_secs(20), |line| {
            seen.push(line.to_owned());
        });
        assert!(ended.is_ok_and(Ended::is_success));
        assert_eq!(seen.len(), 1);
        assert!(dies(&seen[0]));
    }

    #[test]
    fn a_command_over_its_limit_is_killed() {
        let start = Instant::now();
        let ended = run_lines(&mut sh("sleep 1000"), Duration::from_millis(100), |_| {});
        assert!(matches!(ended, Ok(Ended::TimedOut)));
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn dropping_a_group_ends_the_child_and_its_children() {
        let mut group = Group::spawn(sh("sleep 1000 & echo $!; wait").stdout(Stdio::piped())).unwrap();
        let lines = lines_of(group.child().stdout.take().unwrap());
        let grandchild = lines.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(is_alive(&grandchild));
        drop(group);
        assert!(dies(&grandchild));
    }

    #[test]
    fn a_failing_command_is_named_in_the_error() {
        let error = output_of(&mut sh("echo why >&2; exit 1")).unwrap_err().to_string();
        assert!(error.contains("exit status: 1") && error.contains("why"), "{error}");
    }
}
