//! Builds the Java peer, one folder for each Redisson version.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use crate::{cargo, process, setup};

/// The versions that are tested, the newest first.
pub(crate) const VERSIONS: [&str; 3] = ["4.7.0", "3.52.0", "3.17.7"];

/// Builds the peer for that Redisson unless it is built already, and gives its jar.
///
/// The compat tests build it too, by the same lock and the same stamp: whoever comes first.
pub(crate) fn build(version: &str) -> Result<PathBuf> {
    let project = cargo::root().join("compat-tests/peer");
    let target = project.join("target");
    let output = target.join(version);
    let jar = output.join("peer.jar");
    // Made last, so that an interrupted build does not count.
    let stamp = output.join("built");
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    let turn = File::create(target.join("build.lock")).context("cannot open the lock of the peer's build")?;
    flock(&turn, FlockOperation::LockExclusive).context("cannot lock the peer's build")?;
    if is_current(&stamp, &project)? {
        return Ok(jar);
    }
    eprintln!("building the Java peer with Redisson {version}");
    let maven = setup::path_of("mvn").context("`mvn` is not on the PATH")?;
    // Quiet: some Maven packages print control codes even where nobody reads them.
    let mut command = Command::new(maven);
    command.current_dir(&project).args(["--quiet", "--batch-mode", "-DskipTests", "clean", "package"]);
    command.arg(format!("-Dredisson.version={version}"));
    process::output_of(&mut command).with_context(|| format!("cannot build the Java peer with Redisson {version}"))?;
    File::create(&stamp).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(jar)
}

/// Whether `stamp` exists and nothing that the peer is made of has changed since.
fn is_current(stamp: &Path, project: &Path) -> Result<bool> {
    let Ok(stamped) = modified(stamp) else {
        return Ok(false);
    };
    let changed = newest(&project.join("src"))
        .and_then(|sources| Ok(sources.max(modified(&project.join("pom.xml"))?)))
        .with_context(|| format!("cannot read the Java peer in {}", project.display()))?;
    Ok(changed < stamped)
}

/// The latest change of any file below a folder, or of the folder itself.
fn newest(path: &Path) -> io::Result<SystemTime> {
    let mut latest = modified(path)?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            latest = latest.max(newest(&entry?.path())?);
        }
    }
    Ok(latest)
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_changed_source_makes_the_stamp_old() {
        let project = std::env::temp_dir().join(format!("redlatch-xtask-peer-{}", std::process::id()));
        let source = project.join("src/main/java/A.java");
        let stamp = project.join("complete");
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        fs::write(project.join("pom.xml"), "").unwrap();
        fs::write(&source, "").unwrap();
        assert!(!is_current(&stamp, &project).unwrap(), "there is no stamp yet");
        let set = |path: &Path, time| File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        fs::write(&stamp, "").unwrap();
        set(&stamp, SystemTime::now() + Duration::from_secs(5));
        assert!(is_current(&stamp, &project).unwrap());
        set(&source, SystemTime::now() + Duration::from_secs(10));
        assert!(!is_current(&stamp, &project).unwrap());
        fs::remove_dir_all(project).unwrap();
    }
}
