//! `redlatch run`: take the lock, run the command, give the lock back.

use std::time::{Duration, Instant};

use redlatch::{Client, Error, Guard};
use rustix::process::Signal;

use crate::{
    args::Run,
    child::{Child, not_started},
    events::{Event, Events, millis, signal_name},
    exit::Exit,
    failure::{Failure, explain},
    signals::Signals,
    supervise::Supervisor,
    url::RedisUrl,
};

/// Does all of it and says how it ended. Whatever it was has been reported.
pub(crate) async fn run(options: &Run, url: &RedisUrl, events: &Events) -> Exit {
    let exit = match connected(options, url, events).await {
        Ok(exit) => exit,
        Err(failure) => {
            events.emit(&Event::Error { message: failure.message(url) });
            failure.exit()
        }
    };
    events.emit(&Event::Finished { exit_code: exit.code() });
    exit
}

async fn connected(options: &Run, url: &RedisUrl, events: &Events) -> Result<Exit, Failure> {
    let mut signals = Signals::install().map_err(|error| Failure::System("cannot listen for signals", error))?;
    let client = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(interrupted(signal, events)),
        client = connect(options, url, events) => client?,
    };
    let exit = locked(&client, options, url, &mut signals, events).await;
    // Sends what is still to be said: the release of a lock that was granted to a wait that had ended.
    if let Err(error) = client.shutdown().await {
        events.emit(&Event::Warning { message: explain(&error, url) });
    }
    exit
}

async fn connect(options: &Run, url: &RedisUrl, events: &Events) -> Result<Client, Error> {
    let (hook_events, hook_url) = (events.clone(), url.clone());
    Client::builder()
        .url(url.reveal())
        .watchdog_timeout(options.watchdog)
        .on_background_error(move |error| {
            hook_events.emit(&Event::Warning { message: explain(error, &hook_url) });
        })
        .connect()
        .await
}

async fn locked(
    client: &Client,
    options: &Run,
    url: &RedisUrl,
    signals: &mut Signals,
    events: &Events,
) -> Result<Exit, Failure> {
    let started = Instant::now();
    let guard = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(interrupted(signal, events)),
        guard = acquire(client, options, events) => guard,
    };
    let waited_ms = millis(started.elapsed());
    let guard = match guard {
        Ok(Some(guard)) => guard,
        Ok(None) => {
            events.emit(&Event::NotObtained { waited_ms });
            return Ok(Exit::NotObtained);
        }
        // The answer came so late that the lease had ended on its way.
        Err(Error::LeaseLost(_)) => return Ok(lost(events)),
        Err(error) => return Err(error.into()),
    };
    events.emit(&Event::Acquired {
        owner: guard.owner().to_string(),
        waited_ms,
        lease_ms: millis(options.lease.unwrap_or(options.watchdog)),
        renewed: options.lease.is_none(),
    });
    // The same between its arrival and now.
    if !guard.is_valid() {
        return Ok(lost(events));
    }
    if let Some(signal) = signals.ended() {
        let exit = interrupted(signal, events);
        return Ok(give_back_unused(guard, exit, url, events).await);
    }
    command(guard, options, url, signals, events).await
}

/// `None` if it is held by another and the time to wait is over.
async fn acquire(client: &Client, options: &Run, events: &Events) -> Result<Option<Guard>, Error> {
    let started = Instant::now();
    let lock = client.lock(&options.name);
    let attempt = || match options.lease {
        Some(lease) => lock.try_lock().lease(lease),
        None => lock.try_lock(),
    };
    // An attempt of its own, so that "waiting" is said when it is true and not before.
    let guard = attempt().await?;
    if guard.is_some() || options.no_wait || options.wait == Some(Duration::ZERO) {
        return Ok(guard);
    }
    events.emit(&Event::Waiting { wait_ms: options.wait.map(millis) });
    match (options.wait, options.lease) {
        (Some(wait), _) => attempt().wait(wait.saturating_sub(started.elapsed())).await,
        (None, Some(lease)) => lock.lock().lease(lease).await.map(Some),
        (None, None) => lock.lock().await.map(Some),
    }
}

async fn command(
    guard: Guard,
    options: &Run,
    url: &RedisUrl,
    signals: &mut Signals,
    events: &Events,
) -> Result<Exit, Failure> {
    let Some((program, arguments)) = options.command.split_first() else {
        // The parser asks for at least one word.
        return Ok(Exit::Usage);
    };
    let owner = guard.owner().to_string();
    let environment = [("REDLATCH_NAME", options.name.as_str()), ("REDLATCH_OWNER", owner.as_str())];
    let child = match Child::spawn(program, arguments, environment) {
        Ok(child) => child,
        Err(error) => {
            let message = format!("cannot run {:?}: {error}", program.display().to_string());
            events.emit(&Event::Error { message });
            return Ok(give_back_unused(guard, not_started(&error), url, events).await);
        }
    };
    let exit = Supervisor::new(child, signals, events)
        .run(&guard, options.kill_after)
        .await
        .map_err(|error| Failure::System("cannot wait for the command", error))?;
    if exit == Exit::Lost {
        return Ok(exit);
    }
    Ok(give_back(guard, exit, url, events).await)
}

/// The command has ended: whether it had the lock to its end decides between its code and one of ours.
async fn give_back(guard: Guard, exit: Exit, url: &RedisUrl, events: &Events) -> Exit {
    // Redis may still have the hold when it is too old to be trusted; it can be released, but that proves nothing.
    let held = guard.is_valid();
    match guard.release().await {
        Ok(()) if held => {
            events.emit(&Event::Released);
            exit
        }
        Ok(()) | Err(Error::LeaseLost(_)) => lost(events),
        Err(error) => {
            let message = format!(
                "the command has ended (code {}), but the release of the lock is not confirmed; it ends with its \
                 lease at the latest: {}",
                exit.code(),
                explain(&error, url)
            );
            events.emit(&Event::Error { message });
            Exit::Redis
        }
    }
}

/// No command has run: why it did not is what counts, the release is an aside.
async fn give_back_unused(guard: Guard, exit: Exit, url: &RedisUrl, events: &Events) -> Exit {
    match guard.release().await {
        Ok(()) => events.emit(&Event::Released),
        Err(error) => events.emit(&Event::Warning { message: explain(&error, url) }),
    }
    exit
}

fn lost(events: &Events) -> Exit {
    events.emit(&Event::Lost);
    Exit::Lost
}

fn interrupted(signal: Signal, events: &Events) -> Exit {
    let number = signal.as_raw();
    events.emit(&Event::Signal { signal: signal_name(number), number, forwarded: false });
    Exit::Signal(number)
}
