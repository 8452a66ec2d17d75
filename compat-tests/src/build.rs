use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, io};

use rustix::fs::{FlockOperation, flock};

use crate::{Failure, Outcome};

/// The Redisson version the peer runs with: `REDISSON_VERSION`, or the newest one tested.
pub fn redisson_version() -> String {
    env::var("REDISSON_VERSION").unwrap_or_else(|_| "4.7.0".into())
}

/// The peer's jar for this Redisson version, built when there is none or its sources are newer.
///
/// Test binaries run side by side: a lock on a file lets one of them build and the others wait for it.
pub fn built_peer(version: &str) -> Outcome<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer");
    let target = project.join("target");
    let out = target.join(version);
    let jar = out.join("peer.jar");
    // Written last, so that a build cut short is not taken for a finished one.
    let stamp = out.join("built");

    fs::create_dir_all(&target)?;
    let turn = File::create(target.join("build.lock"))?;
    flock(&turn, FlockOperation::LockExclusive)?;
    if is_current(&stamp, &project)? {
        return Ok(jar);
    }
    let output = Command::new("mvn")
        .current_dir(&project)
        .args(["--quiet", "--batch-mode", "-DskipTests", "package"])
        .arg(format!("-Dredisson.version={version}"))
        .output()
        .map_err(|error| Failure::new(format!("cannot run mvn (Maven) to build the Java peer: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return Err(Failure::new(format!("mvn could not build the Java peer with Redisson {version}:\n{said}")));
    }
    File::create(&stamp)?;
    Ok(jar)
}

fn is_current(stamp: &Path, project: &Path) -> io::Result<bool> {
    let built = match fs::metadata(stamp) {
        Ok(metadata) => metadata.modified()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let sources = newest(&project.join("src"))?.max(fs::metadata(project.join("pom.xml"))?.modified()?);
    Ok(sources < built)
}

fn newest(path: &Path) -> io::Result<SystemTime> {
    let metadata = fs::metadata(path)?;
    let mut time = metadata.modified()?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            time = time.max(newest(&entry?.path())?);
        }
    }
    Ok(time)
}
