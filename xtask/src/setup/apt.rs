//! Installing with apt, and undoing the one side effect it has: Debian starts a packaged Redis by itself.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use super::{Manager, Tool, path_of};
use crate::process;

/// Where the packaged service notes its process, under systemd as without it.
const PID_FILE: &str = "/run/redis/redis-server.pid";

/// Installs the packages of the tools. Needs root.
pub(crate) fn install(apt_get: &Path, tools: &[Tool]) -> Result<()> {
    let service_ran_before = service_runs();
    // One source that cannot be reached must not stop the others: whether the packages can be had shows right after.
    if let Err(error) = process::run(&mut quiet_apt(apt_get, &["update"])) {
        eprintln!("set-up: {error}; trying with the lists as they are");
    }
    let packages: Vec<&str> = tools.iter().map(|tool| package(*tool)).collect();
    eprintln!("set-up: installing {}", packages.join(" "));
    let mut command = quiet_apt(apt_get, &["install", "-y", "--no-install-recommends"]);
    let installed = process::run(command.args(&packages));
    // Also after a failure: the service may have been started before it.
    if tools.contains(&Tool::RedisServer) && !service_ran_before && service_runs() {
        eprintln!("set-up: stopping the Redis service that this installation started");
        stop_service()?;
    }
    installed
}

fn quiet_apt(apt_get: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(apt_get);
    // Another apt may be at work on a machine that has just booted: wait for it.
    command.args(["-qq", "-o", "DPkg::Lock::Timeout=300"]).args(args);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    command
}

fn package(tool: Tool) -> &'static str {
    // Where 17 exists it is small and known to fit; elsewhere the distribution's default is newer.
    const JDK_17: &str = "openjdk-17-jdk-headless";
    let has_17 = || process::output_of(Command::new("apt-cache").args(["show", JDK_17])).is_ok();
    match tool {
        Tool::Jdk if has_17() => JDK_17,
        other => other.package(Manager::Apt),
    }
}

/// Whether the packaged service, and not any other Redis, is up.
fn service_runs() -> bool {
    let Ok(pid) = fs::read_to_string(PID_FILE) else {
        return false;
    };
    fs::read_to_string(format!("/proc/{}/comm", pid.trim())).is_ok_and(|name| name.starts_with("redis-server"))
}

fn stop_service() -> Result<()> {
    const NAME: &str = "redis-server";
    let has_systemd = Path::new("/run/systemd/system").is_dir();
    let commands: &[(&str, &[&str])] = if has_systemd {
        &[("systemctl", &["disable", "--now", NAME])]
    } else {
        &[("service", &[NAME, "stop"]), ("update-rc.d", &[NAME, "disable"])]
    };
    for (program, args) in commands {
        let Some(program) = path_of(program) else {
            continue;
        };
        process::run(Command::new(program).args(*args))?;
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while service_runs() {
        if Instant::now() >= deadline {
            bail!("the Redis service that the installation started does not stop (see {PID_FILE})");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
