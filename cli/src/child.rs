//! The command: a process in a process group of its own.

use std::{ffi::OsString, io, os::unix::process::CommandExt, process::Command};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, wait},
};

use crate::exit::Exit;

/// A running command, leader of its process group.
///
/// Not `tokio::process::Child`, which does not tell of stops and takes the status of orphans from us.
#[derive(Debug)]
pub(crate) struct Child {
    group: Pid,
}

/// What `Child::look` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The command ended with a code or by a signal.
    Ended(Exit),
    /// The command was stopped by this signal and can be continued.
    Stopped(i32),
}

impl Child {
    /// Starts the command with stdin, stdout, stderr and directory of redlatch.
    pub(crate) fn spawn(
        program: &OsString,
        arguments: &[OsString],
        environment: [(&str, &str); 2],
    ) -> io::Result<Self> {
        let child = Command::new(program).args(arguments).envs(environment).process_group(0).spawn()?;
        // Never zero and never out of range: the system gave it.
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        group.map(|group| Child { group }).ok_or_else(|| io::Error::other("process id out of range"))
    }

    /// Process id of the command and id of its group.
    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// The next change of state since the last look, if there is one. Reaps every child process there is: as
    /// process 1 of a container redlatch inherits those of the command. An error if there is none.
    pub(crate) fn look(&self) -> io::Result<Option<Change>> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.group => {
                    if let Some(change) = change(status) {
                        return Ok(Some(change));
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a signal to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Fails when the group has ended, and for members that took another user's rights: nothing more can be done.
        let _ = kill_process_group(self.group, signal);
    }

    /// Whether no process of the group is left. The id cannot be another's while one is: the system keeps it.
    pub(crate) fn group_has_ended(&self) -> bool {
        matches!(test_kill_process_group(self.group), Err(Errno::SRCH))
    }
}

/// The exit code for a command that could not be started, as `env` and the shells have it.
pub(crate) fn not_started(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    }
}

fn change(status: WaitStatus) -> Option<Change> {
    if let Some(code) = status.exit_status() {
        // The system hands on the low eight bits only.
        return Some(Change::Ended(Exit::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX))));
    }
    let killed = status.terminating_signal().map(|number| Change::Ended(Exit::Signal(number)));
    killed.or_else(|| status.stopping_signal().map(Change::Stopped))
}
