//! The replay can pass, and it can fail: vectors of the test's own, some of them wrong on purpose.

#![allow(clippy::expect_used, reason = "a test ends at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use compat_tests::{Outcome, SharedRedis, now_us};
use serde_json::{Value, json};

/// A directory with one file of scenarios, removed when dropped.
struct Vectors(PathBuf);

impl Vectors {
    fn new(scenarios: &[Value]) -> Outcome<Self> {
        let directory = env::temp_dir().join(format!("redlatch-vectors-{}-{}", process::id(), now_us()));
        fs::create_dir(&directory)?;
        let vectors = Self(directory);
        fs::write(vectors.0.join("own.json"), serde_json::to_vec(scenarios)?)?;
        Ok(vectors)
    }

    fn replay(&self, options: &[&str]) -> Outcome<Ran> {
        replay(&self.0, options)
    }
}

impl Drop for Vectors {
    fn drop(&mut self) {
        // Fails only when it is gone already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a run printed, and its exit code.
struct Ran {
    lines: Vec<String>,
    complaint: String,
    code: Option<i32>,
}

impl Ran {
    /// The verdict over this scenario.
    #[track_caller]
    fn verdict(&self, scenario: &str) -> &str {
        let verdict = self.lines.iter().find_map(|line| line.strip_prefix(scenario)?.strip_prefix(": "));
        verdict.unwrap_or_else(|| panic!("{scenario} in {:?} {}", self.lines, self.complaint))
    }

    fn last_line(&self) -> &str {
        self.lines.last().map_or("", String::as_str)
    }
}

fn replay(directory: &Path, options: &[&str]) -> Outcome<Ran> {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_replay")).arg(directory).args(options).output()?;
    let lines = String::from_utf8(stdout)?.lines().map(str::to_owned).collect();
    Ok(Ran { lines, complaint: String::from_utf8(stderr)?, code: status.code() })
}

fn scenario(name: &str, clients: &[&str], steps: Value) -> Value {
    let clients: Value = clients.iter().map(|client| ((*client).to_owned(), json!("recorded id"))).collect();
    json!({
        "name": name, "redisson_version": "4.7.0", "redis_version": "7.0.15", "clients": clients, "steps": steps,
        "config": {"lockWatchdogTimeout": 3000, "fairLockWaitTimeout": 5000, "codec": "string"},
    })
}

fn raw(command: Value, keyspace: Value, published: Value) -> Value {
    json!({"op": "raw", "args": {"cmd": command}, "keyspace": keyspace, "published": published, "t_ms": 60_000})
}

/// Keys of every type, times of every sort and a message, made by plain commands.
fn plain_commands() -> Value {
    let hash = json!({"type": "hash", "value": {"f": "1"}, "pttl": [500, 1005]});
    let list = json!({"type": "list", "value": ["b", "a"], "pttl": -1});
    let zset = |score: Value| json!({"type": "zset", "value": {"m": score}, "pttl": -1});
    json!([
        raw(json!(["HSET", "h", "f", "1"]), json!({"h": {"type": "hash", "value": {"f": "1"}, "pttl": -1}}), json!([])),
        raw(json!(["PEXPIRE", "h", 1000]), json!({"h": hash}), json!([])),
        raw(json!(["LPUSH", "l", "a", "b"]), json!({"h": hash, "l": list}), json!([])),
        raw(
            json!(["ZADD", "z", "$NOW+5000", "m"]),
            json!({"h": hash, "l": list, "z": zset(json!([4600, 5100]))}),
            json!([])
        ),
        raw(
            json!(["PUBLISH", "c", "7"]),
            json!({"h": hash, "l": list, "z": zset(json!([4600, 5100]))}),
            json!([{"channel": "c", "payload": "7"}])
        ),
        {
            "op": "sleep", "args": {"ms": 1100}, "published": [], "t_ms": 60_000,
            "keyspace": {"l": list, "z": zset(json!([4000, 5100]))}
        },
    ])
}

/// One hold with a fixed lease, taken and given back.
fn one_hold() -> Value {
    json!([
        {
            "client": "A", "thread": 1, "object": "lock", "key": "k", "op": "tryLock",
            "args": {"wait_ms": 0, "lease_ms": 5000}, "returns": true, "published": [], "t_ms": 60_000,
            "keyspace": {"k": {"type": "hash", "value": {"$A:1": "1"}, "pttl": [4600, 5005]}}
        },
        {
            "client": "A", "thread": 1, "object": "lock", "key": "k", "op": "unlock", "returns": null, "keyspace": {},
            "published": [{"channel": "redisson_lock__channel:{k}", "payload": "0"}], "t_ms": 60_000
        },
    ])
}

#[test]
fn plain_commands_pass_and_the_last_line_counts() -> Outcome {
    let ran = Vectors::new(&[scenario("plain", &[], plain_commands())])?.replay(&[])?;
    assert_eq!(ran.verdict("plain"), "pass");
    assert_eq!(ran.last_line(), "1 passed, 0 failed, 0 skipped");
    assert_eq!(ran.code, Some(0));
    Ok(())
}

#[test]
fn every_corrupted_expectation_of_plain_commands_fails_at_its_step() -> Outcome {
    let corruptions: [(&str, Value, &str); 8] = [
        ("/0/keyspace/h/value/f", json!("2"), "FAIL step 1 (raw): key \"h\": field \"f\" is \"1\", expected \"2\""),
        ("/1/keyspace/h/pttl", json!([100, 500]), "FAIL step 2 (raw): key \"h\": pttl"),
        ("/1/keyspace/h/pttl", json!(-1), "FAIL step 2 (raw): key \"h\": pttl"),
        ("/2/keyspace/l/value", json!(["a", "b"]), "FAIL step 3 (raw): list \"l\""),
        ("/3/keyspace/z/value/m", json!([6000, 7000]), "FAIL step 4 (raw): key \"z\": member \"m\""),
        ("/3/keyspace/extra", json!({"type": "string", "value": "", "pttl": -1}), "FAIL step 4 (raw): key \"extra\""),
        ("/4/published/0/payload", json!("8"), "FAIL step 5 (raw): published"),
        ("/5/published", json!([{"channel": "c", "payload": "7"}]), "FAIL step 6 (sleep): published"),
    ];
    let corrupted = |index: usize, (at, value, _): &(&str, Value, &str)| {
        let mut steps = plain_commands();
        match steps.pointer_mut(at) {
            Some(target) => *target = value.clone(),
            None => steps[3]["keyspace"]["extra"] = value.clone(),
        }
        scenario(&format!("corrupted-{index}"), &[], steps)
    };
    let scenarios: Vec<Value> = corruptions.iter().enumerate().map(|(index, what)| corrupted(index, what)).collect();
    let ran = Vectors::new(&scenarios)?.replay(&["--jobs", "8"])?;
    for (index, (_, _, failure)) in corruptions.iter().enumerate() {
        let verdict = ran.verdict(&format!("corrupted-{index}"));
        assert!(verdict.starts_with(failure), "{verdict:?} begins with {failure:?}");
    }
    assert_eq!(ran.last_line(), "0 passed, 8 failed, 0 skipped");
    assert_eq!(ran.code, Some(1));
    Ok(())
}

#[test]
fn a_hold_through_the_crate_passes_and_a_corrupted_one_fails() -> Outcome {
    let corruptions: [(&str, Value, &str); 5] = [
        ("/0/returns", json!(false), "FAIL step 1 (tryLock \"k\"): returned true, expected false"),
        (
            "/0/keyspace/k/value",
            json!({"$A:2": "1"}),
            "FAIL step 1 (tryLock \"k\"): key \"k\": field \"$A:2\" is missing",
        ),
        ("/0/keyspace/k/pttl", json!([1, 4000]), "FAIL step 1 (tryLock \"k\"): key \"k\": pttl"),
        ("/1/returns", json!(true), "FAIL step 2 (unlock \"k\"): returned null, expected true"),
        ("/1/published/0/payload", json!("1"), "FAIL step 2 (unlock \"k\"): published"),
    ];
    let mut scenarios = vec![scenario("sound", &["A"], one_hold())];
    for (index, (at, value, _)) in corruptions.iter().enumerate() {
        let mut steps = one_hold();
        *steps.pointer_mut(at).expect("a pointer into the steps") = value.clone();
        scenarios.push(scenario(&format!("corrupted-{index}"), &["A"], steps));
    }
    let ran = Vectors::new(&scenarios)?.replay(&[])?;
    assert_eq!(ran.verdict("sound"), "pass");
    for (index, (_, _, failure)) in corruptions.iter().enumerate() {
        let verdict = ran.verdict(&format!("corrupted-{index}"));
        assert!(verdict.starts_with(failure), "{verdict:?} begins with {failure:?}");
    }
    assert_eq!(ran.last_line(), "1 passed, 5 failed, 0 skipped");
    Ok(())
}

/// The same for a kind that keeps its state as a plain lock does, or beside it.
fn one_hold_of(kind: &str) -> Value {
    let mut steps = one_hold();
    let held = |field: &str, more: Value| {
        let mut fields = json!({field: "1"});
        fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"type": "hash", "value": fields, "pttl": [4600, 5005]})
    };
    for step in steps.as_array_mut().expect("steps") {
        step["object"] = json!(kind);
    }
    match kind {
        "read" => {
            steps[0]["keyspace"] = json!({
                "k": held("$A:1", json!({"mode": "read"})),
                "{k}:$A:1:rwlock_timeout:1": {"type": "string", "value": "1", "pttl": [4600, 5005]},
            });
            steps[1]["published"] = json!([{"channel": "redisson_rwlock:{k}", "payload": "0"}]);
        }
        "write" => {
            steps[0]["keyspace"] = json!({"k": held("$A:1:write", json!({"mode": "write"}))});
            steps[1]["published"] = json!([{"channel": "redisson_rwlock:{k}", "payload": "1"}]);
        }
        "fenced" => {
            let token = json!({"type": "string", "value": "1", "pttl": -1});
            steps[0]["op"] = json!("tryLockAndGetToken");
            steps[0]["returns"] = json!(1);
            steps[0]["keyspace"]["redisson_lock_token:{k}"] = token.clone();
            steps[1]["keyspace"]["redisson_lock_token:{k}"] = token;
        }
        // Nobody listens to a spin lock, and nobody stands in the queue of these fair ones.
        "spin" | "fair" | "nonreentrant_fair" => steps[1]["published"] = json!([]),
        _ => {}
    }
    steps
}

#[test]
fn a_hold_of_every_kind_passes_and_a_corrupted_one_fails() -> Outcome {
    let kinds = ["lock", "fair", "read", "write", "fenced", "spin", "nonreentrant", "nonreentrant_fair"];
    let mut scenarios = Vec::new();
    for kind in kinds {
        scenarios.push(scenario(&format!("sound-{kind}"), &["A"], one_hold_of(kind)));
        let mut steps = one_hold_of(kind);
        steps[1]["published"] = json!([{"channel": "redisson_lock__channel:{k}", "payload": "2"}]);
        scenarios.push(scenario(&format!("corrupted-{kind}"), &["A"], steps));
    }
    let ran = Vectors::new(&scenarios)?.replay(&[])?;
    for kind in kinds {
        assert_eq!(ran.verdict(&format!("sound-{kind}")), "pass");
        let verdict = ran.verdict(&format!("corrupted-{kind}"));
        assert!(verdict.starts_with("FAIL step 2 (unlock \"k\"): published"), "{kind}: {verdict:?}");
    }
    assert_eq!(ran.last_line(), "8 passed, 8 failed, 0 skipped");
    Ok(())
}

#[test]
fn a_rule_is_a_difference_only_where_it_was_needed() -> Outcome {
    let fair = |thread: i64, op: &str, args: Value, returns: Value, keyspace: Value| {
        json!({
            "client": "A", "thread": thread, "object": "fair", "key": "k", "op": op, "args": args, "returns": returns,
            "keyspace": keyspace, "published": [], "t_ms": 60_000
        })
    };
    let held = json!({"type": "hash", "value": {"$A:1": "1"}, "pttl": [18_000, 20_005]});
    let line = |owners: Value, scores: Value| {
        json!({
            "k": held,
            "redisson_lock_queue:{k}": {"type": "list", "value": owners, "pttl": -1},
            "redisson_lock_timeout:{k}": {"type": "zset", "value": scores, "pttl": -1},
        })
    };
    let steps = |last: Value| {
        let pending = json!({"pending": true});
        let first = json!({"$A:2": [19_000, 20_900]});
        let both = json!({"$A:2": [18_000, 20_900], "$A:3": [23_000, 25_900]});
        let mut wait = fair(2, "tryLock", json!({"wait_ms": 600}), pending.clone(), line(json!(["$A:2"]), first));
        (wait["handle"], wait["settle_ms"]) = (json!("w2"), json!(100));
        let mut next = fair(3, "lock", json!({}), pending, line(json!(["$A:2", "$A:3"]), both));
        (next["handle"], next["settle_ms"]) = (json!("w3"), json!(100));
        let taken = fair(1, "tryLock", json!({"wait_ms": 0, "lease_ms": 20_000}), json!(true), json!({"k": held}));
        let gave_up = json!({
            "op": "await", "handle": "w2", "returns": false, "published": [], "t_ms": 60_000,
            "keyspace": line(json!(["$A:3"]), json!({"$A:3": last})),
        });
        json!([taken, wait, next, gave_up])
    };
    // As this crate does it: 600 less. As Redisson does it: 5000 less.
    let scenarios = [
        scenario("ours", &["A"], steps(json!([22_500, 25_300]))),
        scenario("theirs", &["A"], steps(json!([18_000, 20_900]))),
    ];
    let ran = Vectors::new(&scenarios)?.replay(&[])?;
    assert_eq!(ran.verdict("ours"), "pass");
    assert_eq!(ran.verdict("theirs"), "difference (8)");
    Ok(())
}

#[test]
fn a_client_that_is_shut_down_is_killed_and_renews_no_more() -> Outcome {
    let held = |pttl: Value| json!({"k": {"type": "hash", "value": {"$A:1": "1"}, "pttl": pttl}});
    let steps = json!([
        {
            "client": "A", "thread": 1, "object": "lock", "key": "k", "op": "lock", "returns": null, "published": [],
            "keyspace": held(json!([2600, 3005])), "t_ms": 60_000
        },
        {"op": "sleep", "args": {"ms": 2500}, "keyspace": held(json!([1700, 3005])), "published": [], "t_ms": 60_000},
        {"client": "A", "op": "shutdown", "keyspace": held(json!([1700, 3005])), "published": [], "t_ms": 60_000},
        {"op": "sleep", "args": {"ms": 3100}, "keyspace": {}, "published": [], "t_ms": 60_000},
    ]);
    let ran = Vectors::new(&[scenario("killed", &["A"], steps)])?.replay(&[])?;
    assert_eq!(ran.verdict("killed"), "pass");
    Ok(())
}

#[test]
fn operations_the_crate_does_not_have_are_a_listed_difference() -> Outcome {
    let mut steps = one_hold();
    let on_k = |op: &str, args: Value, returns: Value, keyspace: Value, published: Value| {
        json!({
            "client": "A", "thread": 1, "object": "lock", "key": "k", "op": op, "args": args, "returns": returns,
            "keyspace": keyspace, "published": published, "t_ms": 60_000
        })
    };
    let held = |pttl: Value| json!({"k": {"type": "hash", "value": {"$A:1": "1"}, "pttl": pttl}});
    let steps = json!([
        steps[0].take(),
        on_k("expire", json!({"ms": 9000}), json!(true), held(json!([8600, 9005])), json!([])),
        on_k("clearExpire", json!({}), json!(true), held(json!(-1)), json!([])),
        on_k(
            "delete",
            json!({}),
            json!(true),
            json!({}),
            json!([{"channel": "redisson_lock__channel:{k}", "payload": "0"}])
        ),
        on_k("delete", json!({}), json!(false), json!({}), json!([])),
    ]);
    let ran = Vectors::new(&[scenario("absent", &["A"], steps)])?.replay(&[])?;
    assert_eq!(ran.verdict("absent"), "difference (absent-operation)");
    assert!(ran.lines.contains(&"rule absent-operation: absent".to_owned()), "{:?}", ran.lines);
    assert_eq!(ran.last_line(), "1 passed, 0 failed, 0 skipped");
    Ok(())
}

#[test]
fn a_rule_a_scenario_is_listed_under_and_does_not_need_fails_the_run() -> Outcome {
    let ran = Vectors::new(&[scenario("lock-reenter-with-lease", &[], plain_commands())])?.replay(&[])?;
    assert_eq!(ran.verdict("lock-reenter-with-lease"), "FAIL listed under a rule it did not need: 1.6");
    assert_eq!(ran.code, Some(1));
    Ok(())
}

#[test]
fn kinds_that_are_not_built_are_skipped_by_name_and_unknown_ones_fail() -> Outcome {
    let with = |kind: &str| {
        let mut steps = one_hold();
        steps[0]["object"] = json!(kind);
        scenario(&format!("of-{kind}"), &["A"], steps)
    };
    let ran = Vectors::new(&[with("multi"), with("latch"), with("mutex")])?.replay(&[])?;
    assert_eq!(ran.verdict("of-multi"), "skip multi");
    assert_eq!(ran.verdict("of-latch"), "skip latch");
    assert_eq!(ran.verdict("of-mutex"), "FAIL not a kind of the format: mutex");
    assert_eq!(ran.last_line(), "0 passed, 1 failed, 2 skipped");
    Ok(())
}

#[tokio::test]
async fn a_database_that_is_not_empty_is_refused_unless_it_may_be_flushed() -> Outcome {
    let redis = SharedRedis::start().await?;
    let url = format!("{}/3", redis.url());
    let vectors = Vectors::new(&[scenario("plain", &[], plain_commands())])?;
    let mut connection = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    redis::cmd("SET").arg("precious").arg("1").exec_async(&mut connection).await?;
    let ran = vectors.replay(&["--redis", &url])?;
    assert_eq!(ran.code, Some(2));
    assert!(ran.complaint.contains("holds 1 keys"), "{}", ran.complaint);
    let left: u64 = redis::cmd("EXISTS").arg("precious").query_async(&mut connection).await?;
    assert_eq!(left, 1);
    let ran = vectors.replay(&["--redis", &url, "--flush"])?;
    assert_eq!((ran.verdict("plain"), ran.code), ("pass", Some(0)));
    Ok(())
}

#[test]
fn what_cannot_be_read_is_an_error_of_its_own() -> Outcome {
    let vectors = Vectors::new(&[json!({"name": "no scenario"})])?;
    let ran = vectors.replay(&[])?;
    assert_eq!(ran.code, Some(2));
    assert!(ran.complaint.contains("own.json"), "{}", ran.complaint);
    let ran = replay(&vectors.0.join("nowhere"), &[])?;
    assert_eq!(ran.code, Some(2));
    Ok(())
}
