use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redlatch::Client;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{Failure, LockKind, Outcome};

/// A workload whose holds are checked in Redis: after each grant and before each release the worker tells a register.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Audit {
    /// Kinds between commas, one of which is drawn for each turn; `downgrade` writes, then reads as well, then only reads.
    pub mix: String,
    /// The lock.
    pub name: String,
    /// Threads or tasks, each of which is an owner.
    pub workers: u32,
    /// Turns of each worker.
    pub turns: u64,
    /// Holds last up to this long.
    pub longest_hold: Duration,
    /// The choices of a worker follow from the seed and its number.
    pub seed: u64,
    /// Who checks.
    pub register: Register,
}

/// A key in which holds are entered, by scripts of the tests' own: atomic, and run by either language.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Register {
    /// Refuses a hold beside others, but for readers beside readers.
    Exclusion(String),
    /// Refuses a fencing token that is not greater than every one before it.
    Tokens(String),
}

/// What a run of Rust workers came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Holds.
    pub holds: u64,
    /// Holds that the register refused.
    pub refused: u64,
}

/// KEYS: the register, a hash of owner to kind. ARGV: owner, kind, token.
const ENTER_EXCLUSION: &str = "
local entries = redis.call('HGETALL', KEYS[1])
local may = 1
for i = 1, #entries, 2 do
  local is_shared = ARGV[2] == 'read' and entries[i + 1] == 'read'
  if entries[i] ~= ARGV[1] and not is_shared then
    may = 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return may";

/// KEYS: the register. ARGV: owner.
const LEAVE_EXCLUSION: &str = "
return redis.call('HDEL', KEYS[1], ARGV[1])";

/// KEYS: the register, a list of `owner token` in the order they were shown; refused ones in a list beside it.
/// ARGV: owner, kind, token.
const ENTER_TOKENS: &str = "
local last = redis.call('LINDEX', KEYS[1], -1)
local shown = ARGV[1] .. ' ' .. ARGV[3]
if last and tonumber(string.match(last, '%d+$')) >= tonumber(ARGV[3]) then
  redis.call('RPUSH', KEYS[1] .. ':refused', shown)
  return 0
end
redis.call('RPUSH', KEYS[1], shown)
return 1";

impl Register {
    /// Where it is kept.
    pub fn key(&self) -> &str {
        match self {
            Self::Exclusion(key) | Self::Tokens(key) => key,
        }
    }

    pub(crate) fn enter(&self) -> &'static str {
        match self {
            Self::Exclusion(_) => ENTER_EXCLUSION,
            Self::Tokens(_) => ENTER_TOKENS,
        }
    }

    /// Empty when there is nothing to leave.
    pub(crate) fn leave(&self) -> &'static str {
        match self {
            Self::Exclusion(_) => LEAVE_EXCLUSION,
            Self::Tokens(_) => "",
        }
    }
}

impl Audit {
    /// A workload of this mix on the lock; holds as short as they can be, one worker, one turn.
    pub fn new(mix: &str, name: &str, register: Register) -> Self {
        Self {
            mix: mix.into(),
            name: name.into(),
            workers: 1,
            turns: 1,
            longest_hold: Duration::ZERO,
            seed: 0,
            register,
        }
    }

    /// Runs it in tasks of this client's; `connection` is for the register.
    pub async fn run(&self, client: &Client, connection: &MultiplexedConnection) -> Outcome<Tally> {
        let mut workers = JoinSet::new();
        for number in 0..u64::from(self.workers) {
            let mut worker = Worker {
                audit: self.clone(),
                client: client.clone(),
                connection: connection.clone(),
                dice: Dice(self.seed * 1_000 + number),
                tally: Tally::default(),
            };
            workers.spawn(async move {
                for _ in 0..worker.audit.turns {
                    worker.turn().await?;
                }
                Ok::<_, Failure>(worker.tally)
            });
        }
        let mut sum = Tally::default();
        while let Some(worker) = workers.join_next().await {
            let tally = worker??;
            sum.holds += tally.holds;
            sum.refused += tally.refused;
        }
        Ok(sum)
    }
}

struct Worker {
    audit: Audit,
    client: Client,
    connection: MultiplexedConnection,
    dice: Dice,
    tally: Tally,
}

impl Worker {
    async fn turn(&mut self) -> Outcome {
        let mix = self.audit.mix.clone();
        let kinds: Vec<&str> = mix.split(',').collect();
        let kind = kinds[self.dice.below(kinds.len() as u64) as usize];
        let hold = Duration::from_micros(self.dice.below(self.audit.longest_hold.as_micros() as u64 + 1));
        if kind == "downgrade" {
            self.downgrade(hold).await?;
        } else {
            let guard = kind.parse::<LockKind>()?.in_rust(&self.client, &self.audit.name).lock().await?;
            let owner = guard.owner().to_string();
            let token = guard.fencing_token().map_or(0, |token| token.get());
            self.enter(&owner, kind, token).await?;
            pause(hold).await;
            self.leave(&owner).await?;
            guard.release().await?;
        }
        self.tally.holds += 1;
        Ok(())
    }

    async fn downgrade(&mut self, hold: Duration) -> Outcome {
        let pair = self.client.read_write_lock(self.audit.name.as_str());
        let owner = self.client.owner();
        let writes = pair.write().owned_by(&owner).lock().await?;
        self.enter(&owner.to_string(), "write", 0).await?;
        pause(hold).await;
        let reads = pair.read().owned_by(&owner).lock().await?;
        // Told before other readers can come in.
        self.enter(&owner.to_string(), "read", 0).await?;
        writes.release().await?;
        pause(hold).await;
        self.leave(&owner.to_string()).await?;
        reads.release().await?;
        Ok(())
    }

    async fn enter(&mut self, owner: &str, kind: &str, token: u64) -> Outcome {
        let register = &self.audit.register;
        let mut call = redis::cmd("EVAL");
        call.arg(register.enter()).arg(1).arg(register.key()).arg(owner).arg(kind).arg(token);
        let may: bool = call.query_async(&mut self.connection).await?;
        self.tally.refused += u64::from(!may);
        Ok(())
    }

    async fn leave(&mut self, owner: &str) -> Outcome {
        let register = &self.audit.register;
        if !register.leave().is_empty() {
            let mut call = redis::cmd("EVAL");
            call.arg(register.leave()).arg(1).arg(register.key()).arg(owner).exec_async(&mut self.connection).await?;
        }
        Ok(())
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

/// Splitmix: small, and every seed does.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
