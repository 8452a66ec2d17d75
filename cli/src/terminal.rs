//! The terminal on stdin: who is in its foreground.

use std::{
    cell::Cell,
    io::{self, IsTerminal},
};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::{
    process::{Pid, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal on stdin. Taken back on drop if it was given away.
#[derive(Debug)]
pub(crate) struct Terminal {
    given: Cell<bool>,
}

impl Terminal {
    /// `None` if stdin is no terminal.
    pub(crate) fn of_stdin() -> Option<Self> {
        io::stdin().is_terminal().then(|| Terminal { given: Cell::new(false) })
    }

    /// Puts `group` in the foreground if redlatch is there now; says whether `group` is there then. A redlatch that
    /// runs in the background of a shell has nothing to give.
    pub(crate) fn give(&self, group: Pid) -> bool {
        match tcgetpgrp(io::stdin()) {
            Ok(foreground) if foreground == group => true,
            Ok(foreground) if foreground == getpgrp() => {
                let given = undisturbed(|| tcsetpgrp(io::stdin(), group)).is_ok();
                self.given.set(given);
                given
            }
            _ => false,
        }
    }

    /// Puts redlatch in the foreground again, if it had given the foreground away.
    pub(crate) fn take_back(&self) {
        if self.given.replace(false) {
            // Fails when the terminal is gone; then there is no foreground to take.
            let _ = undisturbed(|| tcsetpgrp(io::stdin(), getpgrp()));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Runs `action` with TTOU blocked: a process in the background is stopped by it when it touches its terminal, and
/// redlatch must go on renewing. Only for the action, because the command inherits the mask.
pub(crate) fn undisturbed<T>(action: impl FnOnce() -> T) -> T {
    let mut ttou = SigSet::empty();
    ttou.add(Signal::SIGTTOU);
    let before = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let outcome = action();
    if let Ok(mask) = before {
        // Cannot fail: the mask is the one that was set before.
        let _ = mask.thread_set_mask();
    }
    outcome
}
