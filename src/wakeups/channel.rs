//! One channel's subscription, as a state machine without I/O.

/// Where the subscription stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No link; subscribed again when there is one.
    Lost,
    Subscribing,
    Live,
    Unsubscribing,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    Subscribe,
    Unsubscribe,
}

/// A channel that somebody wants, or that is being left.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) state: State,
    pub(crate) wanted: bool,
    /// Number of the command in flight; answers to earlier ones are ignored.
    pub(crate) serial: u64,
}

/// What an event leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Step {
    pub(crate) send: Option<Send>,
    /// The channel has become live.
    pub(crate) live: bool,
    /// Nothing is left to remember.
    pub(crate) gone: bool,
}

impl Channel {
    /// A channel that has just been wanted for the first time. Its commands are numbered from `serial` on.
    pub(crate) fn new(link_up: bool, serial: u64) -> (Self, Step) {
        let mut channel = Self { state: State::Lost, wanted: true, serial };
        let step = if link_up { channel.subscribe() } else { Step::default() };
        (channel, step)
    }

    pub(crate) fn want(&mut self, link_up: bool) -> Step {
        self.wanted = true;
        match self.state {
            State::Live => Step { live: true, ..Step::default() },
            // It was refused; perhaps it is allowed now.
            State::Lost if link_up => self.subscribe(),
            _ => Step::default(),
        }
    }

    pub(crate) fn unwant(&mut self) -> Step {
        self.wanted = false;
        match self.state {
            State::Live => self.unsubscribe(),
            State::Lost => Step { gone: true, ..Step::default() },
            State::Subscribing | State::Unsubscribing => Step::default(),
        }
    }

    /// The command of this number was confirmed.
    pub(crate) fn confirmed(&mut self, serial: u64) -> Step {
        if serial != self.serial {
            return Step::default();
        }
        match (self.state, self.wanted) {
            (State::Subscribing, true) => {
                self.state = State::Live;
                Step { live: true, ..Step::default() }
            }
            (State::Subscribing, false) => self.unsubscribe(),
            (State::Unsubscribing, true) => self.subscribe(),
            (State::Unsubscribing, false) => Step { gone: true, ..Step::default() },
            (State::Lost | State::Live, _) => Step::default(),
        }
    }

    /// The command of this number was refused or never left.
    pub(crate) fn failed(&mut self, serial: u64) -> Step {
        if serial != self.serial {
            return Step::default();
        }
        self.link_down()
    }

    pub(crate) fn link_down(&mut self) -> Step {
        self.state = State::Lost;
        self.serial += 1;
        Step { gone: !self.wanted, ..Step::default() }
    }

    pub(crate) fn link_up(&mut self) -> Step {
        if self.state == State::Lost { self.subscribe() } else { Step::default() }
    }

    fn subscribe(&mut self) -> Step {
        self.state = State::Subscribing;
        self.serial += 1;
        Step { send: Some(Send::Subscribe), ..Step::default() }
    }

    fn unsubscribe(&mut self) -> Step {
        self.state = State::Unsubscribing;
        self.serial += 1;
        Step { send: Some(Send::Unsubscribe), ..Step::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's side: what it is subscribed to, and the commands it has not answered yet.
    #[derive(Clone)]
    struct Run {
        channel: Option<(State, bool, u64)>,
        in_flight: Vec<(Send, u64)>,
        subscribed: bool,
        up: bool,
    }

    impl Run {
        fn with(&mut self, event: impl FnOnce(&mut Channel) -> Step) {
            let Some((state, wanted, serial)) = self.channel else { return };
            let mut channel = Channel { state, wanted, serial };
            let step = event(&mut channel);
            self.after(channel, step);
        }

        fn after(&mut self, channel: Channel, step: Step) {
            if let Some(send) = step.send {
                assert!(self.up, "sent without a link");
                self.in_flight.push((send, channel.serial));
                assert!(self.in_flight.len() == 1, "one command at a time");
            }
            if channel.state == State::Live {
                assert!(self.subscribed && self.in_flight.is_empty(), "live without a subscription");
            }
            self.channel = (!step.gone).then_some((channel.state, channel.wanted, channel.serial));
        }

        fn apply(&mut self, event: usize) {
            match event {
                0 if self.channel.is_none() => {
                    let (channel, step) = Channel::new(self.up, 0);
                    self.after(channel, step);
                }
                0 => {
                    let up = self.up;
                    self.with(|c| c.want(up));
                }
                1 => self.with(Channel::unwant),
                2 if !self.in_flight.is_empty() => {
                    let (send, serial) = self.in_flight.remove(0);
                    self.subscribed = send == Send::Subscribe;
                    self.with(|c| c.confirmed(serial));
                }
                3 if self.up => {
                    (self.up, self.subscribed) = (false, false);
                    self.in_flight.clear();
                    self.with(Channel::link_down);
                }
                4 if !self.up => {
                    self.up = true;
                    self.with(Channel::link_up);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn in_every_order_of_events_the_subscription_ends_as_it_is_wanted() {
        fn explore(run: &Run, depth: usize) {
            // Let the server answer everything: the state must then agree with the wish.
            let mut settled = run.clone();
            settled.apply(4);
            for _ in 0..4 {
                settled.apply(2);
            }
            match settled.channel {
                None => assert!(!settled.subscribed, "left behind"),
                Some((state, wanted, _)) => {
                    assert!(wanted && settled.subscribed && state == State::Live, "{state:?} {wanted}")
                }
            }
            if depth > 0 {
                for event in 0..5 {
                    let mut next = run.clone();
                    next.apply(event);
                    explore(&next, depth - 1);
                }
            }
        }
        explore(&Run { channel: None, in_flight: Vec::new(), subscribed: false, up: true }, 7);
    }

    #[test]
    fn answers_to_an_older_link_change_nothing() {
        let (mut channel, _) = Channel::new(true, 0);
        let old = channel.serial;
        channel.link_down();
        channel.link_up();
        assert_eq!(channel.confirmed(old), Step::default());
        assert_eq!(channel.failed(old), Step::default());
        assert_eq!(channel.state, State::Subscribing);
    }
}
