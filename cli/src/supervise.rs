//! Watches over the command while the lock is held.

use std::{io, time::Duration};

use redlatch::Guard;
use rustix::process::Signal;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::{
    child::{Change, Child},
    events::{Event, Events, signal_name},
    exit::Exit,
    signals::{Received, Signals, suspend},
    terminal::Terminal,
};

/// How often redlatch looks whether a group that was told to end is gone. Only the leader's end is announced.
const LOOK: Duration = Duration::from_millis(20);

/// How long it looks after KILL. What is left then is no process any more but an entry nobody reaps.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// The command and everything that may happen to it.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    child: Child,
    terminal: Option<Terminal>,
    signals: &'a mut Signals,
    events: &'a Events,
    /// redlatch was asked to suspend and has told the command.
    suspending: bool,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(child: Child, signals: &'a mut Signals, events: &'a Events) -> Self {
        let terminal = Terminal::of_stdin();
        if let Some(terminal) = &terminal {
            terminal.give(child.group());
        }
        events.emit(&Event::Started { pid: child.group().as_raw_pid() });
        Supervisor { child, terminal, signals, events, suspending: false }
    }

    /// Runs until the command has ended, and all of its group if the lock was lost.
    pub(crate) async fn run(mut self, guard: &Guard, kill_after: Duration) -> io::Result<Exit> {
        let exit = tokio::select! {
            biased;
            () = guard.lost() => None,
            exit = self.command(guard) => Some(exit?),
        };
        match exit {
            Some(exit) => Ok(exit),
            None => {
                self.events.emit(&Event::Lost);
                self.stop(kill_after).await;
                Ok(Exit::Lost)
            }
        }
    }

    /// Passes signals on until the command has ended.
    async fn command(&mut self, guard: &Guard) -> io::Result<Exit> {
        loop {
            let received = self.signals.next().await;
            if received != Received::Child {
                self.pass_on(received, guard.is_valid());
                continue;
            }
            // Several changes may have been announced by one signal.
            while let Some(change) = self.child.look()? {
                match change {
                    Change::Stopped(signal) => self.on_stop(signal, guard),
                    Change::Ended(exit) => {
                        self.report_end(exit);
                        return Ok(exit);
                    }
                }
            }
        }
    }

    fn pass_on(&mut self, received: Received, held: bool) {
        match received {
            Received::PassOn(signal) => {
                self.child.signal(signal);
                if matches!(signal, Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM) {
                    // A stopped process would not hear it.
                    self.child.signal(Signal::CONT);
                }
                let number = signal.as_raw();
                let signal = signal_name(number);
                self.events.emit(&Event::Signal { signal, number, forwarded: true });
            }
            Received::Resized => self.child.signal(Signal::WINCH),
            Received::Suspend => {
                self.child.signal(Signal::TSTP);
                self.suspending = true;
            }
            // Not without the lock: it may have run out while redlatch was stopped.
            Received::Continued if held => self.child.signal(Signal::CONT),
            Received::Continued | Received::Child => {}
        }
    }

    /// The command was stopped. If that came from the terminal, redlatch stops too, so that the shell gets its
    /// terminal back; else the lock is held on.
    fn on_stop(&mut self, signal: i32, guard: &Guard) {
        let wants_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal);
        // It may also have asked before it was given it, right at its start.
        if wants_terminal && self.give_terminal() {
            self.child.signal(Signal::CONT);
            return;
        }
        if self.terminal.is_none() && !self.suspending {
            return;
        }
        self.suspending = false;
        // Nobody of the group may run on while nobody renews the lock.
        self.child.signal(Signal::STOP);
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        self.events.emit(&Event::Suspended);
        suspend();
        self.events.emit(&Event::Resumed);
        // Without the lock the command stays stopped until it is told to end.
        if guard.is_valid() {
            self.give_terminal();
            self.child.signal(Signal::CONT);
        }
    }

    fn give_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.give(self.child.group()))
    }

    /// TERM, then KILL, to the whole group, until none of it is left.
    async fn stop(&mut self, kill_after: Duration) {
        let now = Instant::now();
        // A time too far away to be computed never comes.
        let mut deadline = now.checked_add(kill_after);
        let mut killed = false;
        let mut leader_ended = false;
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.send(Signal::TERM);
        // A stopped process would not hear it.
        self.child.signal(Signal::CONT);
        loop {
            tokio::select! {
                biased;
                () = until(deadline) => {
                    if killed {
                        return;
                    }
                    killed = true;
                    deadline = Instant::now().checked_add(AFTER_KILL);
                    self.send(Signal::KILL);
                }
                received = self.signals.next() => {
                    // Too late to suspend: it would only keep the group from ending.
                    if received != Received::Suspend {
                        self.pass_on(received, true);
                    }
                }
                _ = look.tick() => {}
            }
            while let Ok(Some(change)) = self.child.look() {
                if let Change::Ended(exit) = change {
                    leader_ended = true;
                    self.report_end(exit);
                }
            }
            if leader_ended && self.child.group_has_ended() {
                return;
            }
        }
    }

    fn send(&self, signal: Signal) {
        self.child.signal(signal);
        self.events.emit(&Event::Stopping { signal: signal_name(signal.as_raw()) });
    }

    fn report_end(&self, exit: Exit) {
        self.events.emit(&match exit {
            Exit::Signal(number) => Event::Exited { code: None, signal: Some(signal_name(number)) },
            other => Event::Exited { code: Some(other.code()), signal: None },
        });
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
