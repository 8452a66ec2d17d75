//! The signals redlatch is sent, as one stream.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, Waker},
};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Passed on to the command; while there is no command yet they end redlatch.
const PASSED_ON: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::ALARM];

/// Never end redlatch by themselves.
const OTHERS: [Signal; 4] = [Signal::CHILD, Signal::CONT, Signal::TSTP, Signal::WINCH];

/// What a signal asks of redlatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// To be passed on.
    PassOn(Signal),
    /// The window has another size: passed on, without a word.
    Resized,
    /// Ctrl-Z on a terminal where redlatch and not the command is in the foreground.
    Suspend,
    /// A child process changed its state.
    Child,
    /// redlatch was continued after a stop.
    Continued,
}

/// Listeners for all signals that redlatch handles.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From here on none of these signals ends the process by itself.
    pub(crate) fn install() -> io::Result<Self> {
        let ignored = ignored_from_birth();
        let mut listeners = Vec::with_capacity(PASSED_ON.len() + OTHERS.len());
        for signal in PASSED_ON.into_iter().chain(OTHERS) {
            // A listener would undo what `nohup` and shells without job control set up, for the command too, which
            // inherits an ignored signal but not a handled one. CHILD is needed whatever was inherited.
            if ignored & bit(signal) == 0 || signal == Signal::CHILD {
                let kind = SignalKind::from_raw(signal.as_raw());
                listeners.push((signal, unix::signal(kind)?));
            }
        }
        Ok(Signals(listeners))
    }

    /// The next signal. Signals of one kind that arrive together count as one, as everywhere on Unix.
    pub(crate) async fn next(&mut self) -> Received {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// The next signal that ends redlatch while it has no command; a suspension is carried out meanwhile.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                Received::PassOn(signal) => return signal,
                Received::Suspend => suspend(),
                Received::Resized | Received::Child | Received::Continued => {}
            }
        }
    }

    /// A signal that ends redlatch and has arrived already.
    pub(crate) fn ended(&mut self) -> Option<Signal> {
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match self.poll(&mut cx) {
                Poll::Ready(Received::PassOn(signal)) => return Some(signal),
                Poll::Ready(_) => {}
                Poll::Pending => return None,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        for (signal, listener) in &mut self.0 {
            // `None` would be the end of the stream, which has none.
            if let Poll::Ready(Some(())) = listener.poll_recv(cx) {
                return Poll::Ready(match *signal {
                    Signal::CHILD => Received::Child,
                    Signal::CONT => Received::Continued,
                    Signal::TSTP => Received::Suspend,
                    Signal::WINCH => Received::Resized,
                    signal => Received::PassOn(signal),
                });
            }
        }
        Poll::Pending
    }
}

/// Stops this process until somebody continues it; not at all where nobody would.
pub(crate) fn suspend() {
    use rustix::process::{getpid, getppid, getsid, kill_process};

    let Some(parent) = getppid() else { return };
    // A shell that can continue us is of our session. (The kernel asks the same before it stops a process for TSTP.)
    let same_session = matches!((getsid(Some(parent)), getsid(None)), (Ok(theirs), Ok(ours)) if theirs == ours);
    if same_session {
        // Cannot fail: our own process, a valid signal.
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Bit n-1 is set for signal n. Zero where the system does not tell.
fn ignored_from_birth() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_ignored(&status)
}

fn parse_ignored(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::{bit, parse_ignored};

    #[test]
    fn ignored_signals_are_read_from_the_status_file() {
        let status = "Name:\tredlatch\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        let ignored = parse_ignored(status);
        assert_ne!(ignored & bit(Signal::HUP), 0);
        assert_ne!(ignored & bit(Signal::PIPE), 0);
        assert_eq!(ignored & bit(Signal::TERM), 0);
    }

    #[test]
    fn without_a_status_file_nothing_counts_as_ignored() {
        assert_eq!(parse_ignored(""), 0);
        assert_eq!(parse_ignored("SigIgn:\tnot hex"), 0);
    }
}
