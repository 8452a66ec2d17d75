//! The timer wheel alone: what a hold costs when it is put on the watchdog and taken off, and when its renewal comes due,
//! with few and with many others on the wheel.
#![allow(missing_docs, reason = "a benchmark has no interface")]

#[path = "../src/watchdog/wheel.rs"]
#[allow(dead_code, reason = "the wheel's own file; not all of it is measured")]
mod wheel;

use std::{hint::black_box, time::Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wheel::Wheel;

/// As the watchdog has it: two periods of 64 ticks.
const SLOTS: usize = 128;
const PERIOD: u64 = 64;
/// Holds that are on the wheel meanwhile.
const CROWDS: [u64; 3] = [100, 10_000, 1_000_000];

criterion_group!(benches, insert_and_cancel, come_due);
criterion_main!(benches);

fn crowded(crowd: u64) -> Wheel<u64> {
    let mut wheel = Wheel::new(SLOTS, 0);
    for hold in 0..crowd {
        wheel.insert(1 + hold % PERIOD, hold);
    }
    wheel
}

fn insert_and_cancel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel/insert and cancel");
    for crowd in CROWDS {
        group.bench_with_input(BenchmarkId::from_parameter(crowd), &crowd, |b, &crowd| {
            let (mut wheel, mut due) = (crowded(crowd), 0);
            b.iter(|| {
                due = due % PERIOD + 1;
                let token = wheel.insert(due, due);
                black_box(wheel.cancel(token))
            });
        });
    }
    group.finish();
}

/// Time goes on by whole ticks; what comes due is put on again a period later, as renewals do.
fn come_due(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel/come due and insert again");
    group.throughput(Throughput::Elements(1));
    for crowd in CROWDS {
        group.bench_with_input(BenchmarkId::from_parameter(crowd), &crowd, |b, &crowd| {
            let (mut wheel, mut now, mut due) = (crowded(crowd), 0, Vec::new());
            b.iter_custom(|wanted| {
                let (started, mut renewed) = (Instant::now(), 0);
                while renewed < wanted {
                    now += 1;
                    wheel.advance(now, &mut due);
                    renewed += due.len() as u64;
                    for hold in due.drain(..) {
                        wheel.insert(now + PERIOD, hold);
                    }
                }
                started.elapsed().mul_f64(wanted as f64 / renewed as f64)
            });
        });
    }
    group.finish();
}
