//! Thirty readers and a writer in random orders, against a model of what they were promised.
//!
//! Time passes by taking it off every key's time to live, so no test sleeps.

use proptest::{prelude::*, test_runner::TestRunner};

use super::*;
use crate::scripts::{
    READ_RELEASE,
    read_write::{Raise, ReadRenewal},
};

const READERS: usize = 30;
/// The time by which the key may outlive the last hold.
const SLACK: Duration = Duration::from_secs(1);
/// What two readings of a clock of whole milliseconds may be apart.
const TICK: Duration = Duration::from_millis(2);
/// What a script's readings of the clock may be apart on a busy machine, and the model's clock from that of Redis.
const BLUR: Duration = Duration::from_millis(300);

/// Begins scripts that need exact times: when a key ends, in ms since the epoch; `nil`: it has no end.
const END_OF: &str = "local function now()
    local time = redis.call('time')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function end_of(key)
    while true do
        local before, left = now(), redis.call('pttl', key)
        if now() == before then
            return left >= 0 and before + left or nil
        end
    end
end
";

/// Lets time pass on all keys.
const PASS: &str = "for _, key in ipairs(redis.call('keys', '*')) do
    redis.call('pexpireat', key, (end_of(key) or 0) - ARGV[1])
end";

/// Copies the lock and its hold keys to another name.
const COPY: &str = "for _, key in ipairs(redis.call('keys', '{' .. ARGV[1] .. '}:*')) do
    redis.call('copy', key, '{' .. ARGV[2] .. string.sub(key, #ARGV[1] + 2), 'replace')
end
redis.call('copy', ARGV[1], ARGV[2], 'replace')";

/// Deletes every key but the lock and its hold keys.
const FORGET_COPIES: &str = "for _, key in ipairs(redis.call('keys', '*')) do
    if not string.find(key, ARGV[1], 1, true) then redis.call('del', key) end
end";

/// What the lock and the last live hold key have left, in ms; below 0 for nothing.
const ENDS: &str = "local last, fields = 0, redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
    for n = 1, tonumber(fields[i + 1]) or 0 do
        local hold_key = '{' .. KEYS[1] .. '}:' .. fields[i] .. ':rwlock_timeout:' .. n
        last = math.max(last, end_of(hold_key) or 0)
    end
end
local now = now()
return {(end_of(KEYS[1]) or 0) - now, last - now}";

/// When a hold ends: at the earliest, and at the latest, for nobody knows when exactly Redis ran the script.
#[derive(Clone, Copy, Debug)]
struct End {
    earliest: Duration,
    latest: Duration,
}

struct World {
    lock: Lock,
    started: Instant,
    passed: Duration,
    /// The thread ids of the readers; one that died is followed by a new one.
    ids: Vec<i64>,
    next_id: i64,
    /// For each reader the ends of its holds, by number.
    holds: Vec<Vec<End>>,
    /// Ends of holds of readers that died.
    orphans: Vec<End>,
    /// Releases while more than eight others read, and how many of these looked at all of them.
    crowded: u64,
    full_visits: u64,
}

impl World {
    fn new() -> Self {
        Self {
            lock: Lock::new(),
            started: Instant::now(),
            passed: Duration::ZERO,
            ids: (0..READERS as i64).collect(),
            next_id: READERS as i64,
            holds: vec![Vec::new(); READERS],
            orphans: Vec::new(),
            crowded: 0,
            full_visits: 0,
        }
    }

    fn restart(&mut self) {
        self.lock.server.ask::<()>(cmd("FLUSHALL").arg("SYNC"));
        self.holds = vec![Vec::new(); READERS];
        self.orphans.clear();
        self.lock.heard();
    }

    fn now(&self) -> Duration {
        self.started.elapsed() + self.passed
    }

    /// The end of what was set to `lease` between `sent` and now.
    fn end(&self, sent: Duration, lease: Duration) -> End {
        End { earliest: sent + lease, latest: self.now() + lease }
    }

    /// What a hold has left, as its client believes it.
    fn left(&self, end: &End) -> Duration {
        end.earliest.saturating_sub(self.now()).max(Duration::from_millis(1))
    }

    fn eval<T: FromRedisValue>(&self, script: &str, keys: &[&str], args: &[&str]) -> T {
        let script = format!("{END_OF}{script}");
        self.lock.server.ask(cmd("EVAL").arg(script).arg(keys.len()).arg(keys).arg(args))
    }

    /// Time to live of the key and of the last hold key, as Redis has them.
    fn ends(&self, key: &str) -> (Option<Duration>, Option<Duration>) {
        let [key, last]: [i64; 2] = self.eval(ENDS, &[key], &[]);
        let left = |ms: i64| u64::try_from(ms).ok().map(Duration::from_millis);
        (left(key), left(last))
    }

    /// The end of the last hold, those of the dead included.
    fn last_end(&self) -> End {
        let ends = || self.holds.iter().flatten().chain(&self.orphans);
        End {
            earliest: ends().map(|end| end.earliest).max().unwrap_or_default(),
            latest: ends().map(|end| end.latest).max().unwrap_or_default(),
        }
    }

    fn step(&mut self, event: u8, who: usize, pick: usize) {
        match event {
            0..10 => self.acquire(who, pick),
            10..16 => self.release(who, pick),
            16..20 => self.renew(who),
            20 => self.die(who),
            21 => self.try_to_write(),
            22..25 => self.pass(Duration::from_millis(pick as u64)),
            _ => self.pass(Duration::from_millis(pick as u64 * 12)),
        }
        self.check();
    }

    fn acquire(&mut self, who: usize, pick: usize) {
        let lease = [s(2), s(5), s(10), s(10), s(30), Duration::from_millis(200 + pick as u64)][pick % 6];
        let longest = self.holds[who].iter().map(|end| self.left(end)).max().unwrap_or_default().max(lease);
        let target = self.holds[who].len() as u64 + 1;
        let ask = Acquire { owner: owner(self.ids[who]), target, lease, longest, abandoned: &[] };
        let sent = self.now();
        let Acquired::Granted(Granted { found, .. }) = self.lock.read_asking(&ask) else { panic!("nobody writes") };
        if found == 0 {
            self.lost(who);
        }
        assert_eq!(found, self.holds[who].len() as u64);
        let end = self.end(sent, lease);
        self.holds[who].push(end);
    }

    fn release(&mut self, who: usize, pick: usize) {
        if self.holds[who].is_empty() {
            return;
        }
        let gone = pick % self.holds[who].len();
        let mut left = self.holds[who].clone();
        left.remove(gone);
        let rearm: Vec<Duration> = left[gone..].iter().map(|end| self.left(end)).collect();
        let is_crowded = self.others(who) > 8;
        if is_crowded {
            self.compare_with_a_full_visit(who, left.len() as u64, &rearm);
        }
        let visits = self.lock.server.calls("hgetall");
        let sent = self.now();
        let found = self.lock.release_read(self.ids[who], left.len() as u64, &rearm).found;
        if is_crowded {
            self.crowded += 1;
            self.full_visits += self.lock.server.calls("hgetall") - visits;
        }
        if found == 0 {
            return self.lost(who);
        }
        assert_eq!(found, left.len() as u64 + 1);
        for (end, lease) in left[gone..].iter_mut().zip(rearm) {
            *end = self.end(sent, lease);
        }
        self.holds[who] = left;
    }

    /// Readers in the hash besides this one.
    fn others(&self, who: usize) -> usize {
        let fields = self.lock.fields();
        fields.len().saturating_sub(1 + usize::from(fields.contains_key(&self.ids[who].to_string())))
    }

    /// The same release, and one where every reader is looked at, as Redisson does, on copies of the lock.
    fn compare_with_a_full_visit(&self, who: usize, target: u64, rearm: &[Duration]) {
        let few = "local FEW, SLACK = 8,";
        assert!(READ_RELEASE.source.contains(few));
        let full = READ_RELEASE.source.replace(few, "local FEW, SLACK = 1e9,");
        let release = |key: &str, source: &str| {
            self.eval::<()>(COPY, &[], &[&self.lock.name, key]);
            let names = Names { key, channel: "elsewhere" };
            let ask = ReadRelease { owner: owner(self.ids[who]), target, rearm, strict: false, ended: false };
            let call = read_write::release_read(names, Flavour::Plain, &ask);
            let mut eval = cmd("EVAL");
            eval.arg(source);
            call.evalsha.args_iter().skip(2).for_each(|arg| match arg {
                redis::Arg::Simple(bytes) => drop(eval.arg(bytes)),
                _ => unreachable!("a script has no cursor"),
            });
            self.lock.server.ask::<Value>(&eval);
            self.ends(key).0
        };
        let start = Instant::now();
        let exact = release("full", &full).unwrap_or_default();
        let ours = release("ours", READ_RELEASE.source).unwrap_or_default();
        let took = start.elapsed() + TICK;
        assert!(ours + took >= exact, "{ours:?}, a full visit gives {exact:?}");
        assert!(ours <= exact + SLACK + took, "{ours:?}, a full visit gives {exact:?}");
        self.eval::<()>(FORGET_COPIES, &[], &[&self.lock.name]);
    }

    fn renew(&mut self, who: usize) {
        if self.holds[who].is_empty() {
            return;
        }
        let (key, owner) = (&*self.lock.name, owner(self.ids[who]));
        let renewal = ReadRenewal { key, owner, holds: Raise::All(s(10)), key_lives: s(10) };
        let sent = self.now();
        let reply = self.lock.run(&read_write::renew_reads(std::iter::once(renewal)));
        match read_write::read_renewed(key, &reply, 1).expect("a count")[0] {
            0 => self.lost(who),
            count => {
                assert_eq!(count, self.holds[who].len() as u64);
                let end = self.end(sent, s(10));
                for hold in &mut self.holds[who] {
                    hold.earliest = hold.earliest.max(end.earliest);
                    hold.latest = hold.latest.max(end.latest);
                }
            }
        }
    }

    fn die(&mut self, who: usize) {
        let ends = std::mem::take(&mut self.holds[who]);
        self.orphans.extend(ends);
        self.ids[who] = self.next_id;
        self.next_id += 1;
    }

    /// The reader's field is gone: then none of its holds may have had time left.
    fn lost(&mut self, who: usize) {
        let ends = std::mem::take(&mut self.holds[who]);
        assert!(ends.iter().all(|end| end.earliest < self.now() + BLUR), "{ends:?} at {:?}", self.now());
    }

    fn try_to_write(&mut self) {
        match self.lock.write(-1, 1, s(30)) {
            Acquired::Granted(_) => {
                assert!(self.last_end().earliest < self.now() + BLUR, "a writer beside a live reader");
                assert_eq!(self.lock.release_write(-1, 0, s(1)), released(1, true));
            }
            answer => {
                busy(answer, true);
                if let (Some(key), Some(last)) = self.ends(&self.lock.name) {
                    assert!(key <= last + BLUR, "a refused writer leaves the key {last:?}, not {key:?}");
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.eval::<()>(PASS, &[], &[&time.as_millis().to_string()]);
        self.passed += time;
    }

    fn check(&self) {
        let before = self.now();
        let (key, last) = self.ends(&self.lock.name);
        let (key, last) = (key.unwrap_or_default(), last.unwrap_or_default());
        assert!(key + TICK >= last, "the key has {key:?}, a hold {last:?}");
        assert!(key <= last + SLACK + BLUR, "the key has {key:?}, the last hold {last:?}");
        let promised = self.last_end();
        assert!(self.now() + last + BLUR >= promised.earliest, "the last hold has {last:?}, promised {promised:?}");
        assert!(
            before + last <= promised.latest.max(before) + BLUR,
            "the last hold has {last:?}, promised {promised:?}"
        );
    }
}

#[test]
fn in_any_order_the_key_lives_as_long_as_the_last_reader_and_at_most_a_second_more() {
    let cases = if std::env::var_os("REDLATCH_FULL").is_some() { 5_000 } else { 60 };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let world = RefCell::new(World::new());
    let events = prop::collection::vec((0u8..26, 0..READERS, 0usize..1000), 20..300);
    let outcome = TestRunner::new(config).run(&events, |events| {
        let mut world = world.borrow_mut();
        world.restart();
        for (event, who, pick) in events {
            world.step(event, who, pick);
        }
        Ok(())
    });
    if let Err(e) = outcome {
        panic!("{e}");
    }
    let World { crowded, full_visits, .. } = world.into_inner();
    assert!(crowded > 5 * u64::from(cases), "{crowded} releases among more than eight others");
    assert!(full_visits * 3 < crowded, "{full_visits} of {crowded} releases looked at every reader");
}
