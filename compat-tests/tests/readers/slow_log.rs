//! What scripts cost the server, from its slow log.

use std::fmt;

use compat_tests::{Outcome, SharedRedis};

/// Microseconds. Commands inside scripts would be logged too, and at that cost: none of them takes so long.
const LOGGED_FROM: u64 = 20;

/// The times of every script, phase by phase.
pub(crate) struct Times<'a> {
    redis: &'a SharedRedis,
    scripts: u64,
    phases: Vec<Phase>,
}

struct Phase {
    name: &'static str,
    scripts: u64,
    /// Which of them counts as the typical worst.
    quantile: f64,
    typical: u64,
    slowest: u64,
}

impl<'a> Times<'a> {
    /// Begins to log.
    pub(crate) async fn start(redis: &'a SharedRedis) -> Outcome<Self> {
        for (name, value) in [("slowlog-log-slower-than", LOGGED_FROM), ("slowlog-max-len", 100_000)] {
            redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(&mut redis.admin()).await?;
        }
        redis::cmd("SLOWLOG").arg("RESET").exec_async(&mut redis.admin()).await?;
        Ok(Self { redis, scripts: redis.scripts_run().await?, phases: Vec::new() })
    }

    /// Ends a phase. The machine may stop the server for a while in the middle of any script: where many different ones
    /// were run their slowest part is left out, where the same was run again and again the one in the middle is taken.
    pub(crate) async fn phase(&mut self, name: &'static str, quantile: f64) -> Outcome {
        let mut admin = self.redis.admin();
        let entries: Vec<(i64, i64, u64, Vec<String>, String, String)> =
            redis::cmd("SLOWLOG").arg("GET").arg(-1).query_async(&mut admin).await?;
        redis::cmd("SLOWLOG").arg("RESET").exec_async(&mut admin).await?;
        let run = self.redis.scripts_run().await?;
        let scripts = run - std::mem::replace(&mut self.scripts, run);
        let is_script = |words: &[String]| words.first().is_some_and(|word| word.to_lowercase().starts_with("eval"));
        let logged = entries.into_iter().filter(|entry| is_script(&entry.3)).map(|entry| entry.2);
        let mut times: Vec<u64> = logged.collect();
        times.resize(times.len().max(usize::try_from(scripts)?), LOGGED_FROM);
        times.sort_unstable();
        assert!(!times.is_empty(), "{name}: no script was run");
        let rank = ((times.len() as f64 * quantile) as usize).min(times.len() - 1);
        let slowest = times[times.len() - 1];
        self.phases.push(Phase { name, scripts, quantile, typical: times[rank], slowest });
        Ok(())
    }

    /// The slowest call that is no accident, in microseconds.
    pub(crate) fn typical_worst(&self) -> u64 {
        self.phases.iter().map(|phase| phase.typical).max().unwrap_or(0)
    }
}

impl fmt::Display for Times<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slowest = self.phases.iter().map(|phase| phase.slowest).max().unwrap_or(0);
        write!(f, "slowest {slowest}, but for accidents {}", self.typical_worst())?;
        for phase in &self.phases {
            let part = phase.quantile * 100.0;
            let Phase { name, scripts, typical, slowest, .. } = phase;
            write!(f, "; {name}: {scripts} scripts, {part:.0} % within {typical}, slowest {slowest}")?;
        }
        Ok(())
    }
}
