//! How a round is brought to an empty database.

use super::super::call::{Args, Call, Op};
use super::{LONGEST_STEP, World};

impl World {
    /// About how many steps it takes to clean up.
    pub(super) fn cleaning(&self) -> usize {
        let used = |name: &str| self.steps.iter().any(|step| step.name() == Some(name));
        2 * self.waiting.len() + self.unawaited.len() + 2 * self.names.iter().filter(|(name, _)| used(name)).count()
    }

    /// Ends every wait and every hold. Says whether all is gone.
    pub(super) fn clean_up(&mut self) -> bool {
        for _ in 0..60 {
            if let Some(started) = self.unawaited.first().copied() {
                if self.step(Op::Await(started)).is_err() {
                    return false;
                }
                continue;
            }
            match self.left_over() {
                Some((name, ops)) if ops.iter().any(|op| self.helps(&name, op.clone())) => {}
                Some(_) if self.soonest().is_some_and(|(_, when)| when.lo < self.now + LONGEST_STEP) => {
                    if self.let_time_pass().is_err() {
                        return false;
                    }
                }
                Some(_) => return false,
                None => break,
            }
        }
        self.waiting.is_empty()
    }

    /// Does it if that changes who holds or waits.
    fn helps(&mut self, name: &str, op: Op) -> bool {
        let before: Vec<_> = self.forecasts.iter().map(|forecast| forecast.view(name)).collect();
        let mut tried = self.clone();
        let helps = tried.step(op).is_ok()
            && tried.forecasts.iter().zip(before).any(|(forecast, before)| forecast.view(name) != before);
        if helps {
            *self = tried;
        }
        helps
    }

    /// What could end something that is left.
    fn left_over(&self) -> Option<(String, Vec<Op>)> {
        let actor = *self.idle().first()?;
        for (name, family) in &self.names {
            let views: Vec<_> = self.forecasts.iter().map(|forecast| forecast.view(name)).collect();
            if views.iter().all(|view| view.holders.is_empty() && view.waiters == 0) {
                continue;
            }
            let call = |owner, op, kind: &'static str| {
                let (name, in_background) = (name.clone(), false);
                Op::Call(Call { owner, kind, name, op, args: Args::default(), in_background })
            };
            let force = |kind: &&'static str| call(actor, "forceUnlock", kind);
            // A read/write lock is forced open by the half that holds it.
            let writes = views.iter().any(|view| !view.writers.is_empty());
            let mut kinds: Vec<&&'static str> = family.kinds.iter().collect();
            if writes {
                kinds.reverse();
            }
            // An unlock says more than force, where it will do.
            let idle = self.idle();
            let holder =
                views[0].holders.iter().find(|holder| idle.contains(holder) && !self.steps.len().is_multiple_of(3));
            let unlock = holder.and_then(|holder| Some(call(*holder, "unlock", kinds.first()?)));
            let forced = kinds.iter().map(|kind| force(kind)).collect::<Vec<_>>();
            return Some((name.clone(), unlock.into_iter().chain(forced).collect()));
        }
        None
    }
}
