//! Finds the tools that the tests and the demo start, and installs what is missing where that is safe to do.

mod apt;
mod tools;

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result, bail};

pub(crate) use tools::{Manager, Tool, path_of, redis_server};

/// What the demo needs.
pub(crate) const DEMO: &[Tool] = &[Tool::RedisServer, Tool::Jdk, Tool::Maven];
/// What every test needs: the outage tests cut links between network namespaces with `ip`.
pub(crate) const ALL: &[Tool] = &[Tool::RedisServer, Tool::Jdk, Tool::Maven, Tool::Ip, Tool::Kill];
/// What the tests of the library alone need.
pub(crate) const LIBRARY: &[Tool] = &[Tool::RedisServer, Tool::Ip, Tool::Kill];

/// A tool is missing and the xtask may not install it.
#[derive(Debug)]
pub(crate) struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Makes sure that the tools are there: as root with apt by installing them, else by saying what to run.
pub(crate) fn ensure(needed: &[Tool]) -> Result<()> {
    let missing = missing(needed);
    if missing.is_empty() {
        return Ok(());
    }
    for (tool, why) in &missing {
        eprintln!("set-up: {tool}: {why}");
    }
    let tools: Vec<Tool> = missing.iter().map(|(tool, _)| *tool).collect();
    let is_root = rustix::process::geteuid().is_root();
    let Some(apt_get) = path_of("apt-get").filter(|_| is_root) else {
        let manager = Manager::ALL.into_iter().find(|manager| path_of(manager.program()).is_some());
        return Err(Missing(advice(manager, &tools, is_root)).into());
    };
    apt::install(&apt_get, &tools).context("set-up could not install what is missing")?;
    let still: Vec<String> = self::missing(&tools).iter().map(|(tool, why)| format!("{tool}: {why}")).collect();
    if !still.is_empty() {
        bail!("apt-get installed the packages, and yet:\n  {}\nIs another one first on the PATH?", still.join("\n  "));
    }
    Ok(())
}

fn missing(needed: &[Tool]) -> Vec<(Tool, String)> {
    needed.iter().filter_map(|tool| Some((*tool, tool.check().err()?))).collect()
}

/// The one command to run, for the package manager that this machine has.
fn advice(manager: Option<Manager>, missing: &[Tool], is_root: bool) -> String {
    let Some(manager) = manager else {
        let names: Vec<String> = missing.iter().map(Tool::to_string).collect();
        return format!("install {} and put them on the PATH, then try again", names.join(", "));
    };
    let packages: BTreeSet<&str> = missing.iter().map(|tool| tool.package(manager)).collect();
    let packages = packages.into_iter().collect::<Vec<_>>().join(" ");
    let mut command = format!("{} {packages}", manager.install());
    if manager.needs_root() && !is_root {
        command = format!("sudo sh -c '{command}'");
    }
    format!("run this, then try again:\n\n    {command}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_one_command_with_every_missing_package() {
        let all = |manager, is_root| advice(manager, ALL, is_root);
        let line = all(Some(Manager::Apt), false).lines().nth(2).unwrap().trim().to_owned();
        assert_eq!(
            line,
            "sudo sh -c 'apt-get update && apt-get install -y default-jdk-headless iproute2 maven procps redis-server'"
        );
        assert!(
            all(Some(Manager::Dnf), true).contains("    dnf install -y iproute java-devel maven redis util-linux\n")
        );
        assert!(advice(Some(Manager::Brew), DEMO, false).contains("    brew install maven openjdk redis\n"));
    }

    #[test]
    fn without_a_package_manager_the_tools_are_named() {
        let advice = advice(None, &[Tool::Jdk, Tool::Maven], false);
        assert_eq!(advice, "install a JDK (17 or newer), Maven (mvn) and put them on the PATH, then try again");
    }
}
