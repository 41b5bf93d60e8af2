//! A folder of segments, which any number of processes read and write at once.
//!
//! Each installation has a folder of its own in it, by its fingerprint. A segment is written beside its place
//! and moved there, so it is whole or not there. What was used last is the time of the last change of the
//! file, which whoever has found something in it renews; the segments that were not used for longest go first.

use std::cmp::Reverse;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Fingerprint, Segment, SegmentError, key_of, merge};

/// Tells the writers of a process apart.
static TURN: AtomicU64 = AtomicU64::new(0);

const SUFFIX: &str = "jxs";
/// What is left of a process that was killed while it wrote is removed once it is as old as this.
const STALE_SECONDS: u64 = 3600;
/// More segments than this become one.
const MAX_SEGMENTS: usize = 16;
/// Segments of this length are not merged.
const MAX_MERGED: u64 = 1 << 25;

/// A folder of segments.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    own: PathBuf,
    fingerprint: Fingerprint,
}

/// How much a folder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Files of all installations.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Listed {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Folder {
    /// What a folder has for an installation. Nothing is read or made yet.
    pub fn new(root: &Path, fingerprint: Fingerprint) -> Self {
        let name = format!("{:032x}", u128::from_be_bytes(fingerprint.0));
        Self { root: root.into(), own: root.join(name), fingerprint }
    }

    /// The folder of the installation.
    pub fn path(&self) -> &Path {
        &self.own
    }

    /// The segments of the installation, last used first, and what is none, with the reason.
    ///
    /// # Errors
    /// The folder is there and cannot be read.
    #[allow(clippy::type_complexity)] // segments and refusals
    pub fn segments(&self) -> io::Result<(Vec<(PathBuf, Segment)>, Vec<(PathBuf, SegmentError)>)> {
        let mut listed = list(&self.own)?;
        listed.sort_by_key(|file| Reverse(file.used));
        let (mut segments, mut refused) = (Vec::new(), Vec::new());
        for Listed { path, .. } in listed {
            match Segment::open(&path, self.fingerprint) {
                Ok(segment) => segments.push((path, segment)),
                // Somebody else has removed it meanwhile.
                Err(SegmentError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => refused.push((path, error)),
            }
        }
        Ok((segments, refused))
    }

    /// Writes a segment, whole or not at all; its path.
    ///
    /// # Errors
    /// It cannot be written: nothing is left of it.
    pub fn write(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.own.join(format!("{:032x}.{SUFFIX}", key_of(bytes)));
        // Processes of several machines may have one number, and threads of one process write at once.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let suffix = format!("{}-{}-{turn}.new", std::process::id(), now.as_nanos());
        let beside = path.with_extension(suffix);
        let mut tries = 3;
        let written = (|| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            make_private(&self.root)?;
            let mut file = loop {
                make_private(&self.own)?;
                match options.open(&beside) {
                    // Somebody has removed the folder, which was empty.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => {
                        tries -= 1;
                    }
                    opened => break opened?,
                }
            };
            file.write_all(bytes)?;
            file.sync_data()?;
            drop(file);
            fs::rename(&beside, &path)
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        Ok(path)
    }

    /// Notes that something was found in a segment.
    pub fn touch(path: &Path) {
        // Somebody may have put something else there, and to open a pipe may take for ever.
        if fs::symlink_metadata(path).is_ok_and(|data| data.is_file())
            && let Ok(file) = File::open(path)
        {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Makes one segment of many small ones.
    ///
    /// # Errors
    /// It cannot be written: the small ones stay.
    pub fn compact(&self) -> io::Result<()> {
        let small: Vec<_> =
            list(&self.own)?.into_iter().filter(|file| file.bytes < MAX_MERGED).collect();
        if small.len() <= MAX_SEGMENTS {
            return Ok(());
        }
        let opened = small.iter().filter_map(|file| {
            Some((&file.path, Segment::open(&file.path, self.fingerprint).ok()?))
        });
        let opened: Vec<_> = opened.collect();
        let segments: Vec<&Segment> = opened.iter().map(|(_, segment)| segment).collect();
        let Ok(merged) = merge(&segments) else { return Ok(()) };
        if merged.is_empty() {
            return Ok(());
        }
        let written = self.write(&merged.finish(self.fingerprint))?;
        for (path, _) in &opened {
            if **path != written {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Removes the segments that were not used for longest, of all installations, until no more than
    /// `max_bytes` are there; and what is left of processes that were killed.
    pub fn trim(&self, max_bytes: u64) {
        let mut files = self.all_files();
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        files.sort_by_key(|file| file.used);
        for file in files {
            if bytes <= max_bytes {
                break;
            }
            if fs::remove_file(&file.path).is_ok() {
                bytes -= file.bytes;
            }
        }
        for folder in folders(&self.root) {
            remove_left(&folder, is_stale);
            if folder != self.own {
                // Where it is empty.
                let _ = fs::remove_dir(&folder);
            }
        }
    }

    /// Writes a segment, and keeps the bound. Where there is no room, there may be some after that.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, bytes: &[u8], max_bytes: u64) -> io::Result<()> {
        let written = self.write(bytes).or_else(|_| {
            self.trim(max_bytes);
            self.write(bytes)
        });
        // What was written stays where that fails.
        let _ = written.as_ref().map(|_| self.compact());
        self.trim(max_bytes);
        written.map(drop)
    }

    /// Removes everything; how many files.
    pub fn clear(&self) -> usize {
        let files = self.usage().files;
        self.trim(0);
        for folder in folders(&self.root) {
            remove_left(&folder, |_| true);
            let _ = fs::remove_dir(&folder);
        }
        files - self.usage().files
    }

    /// How much there is.
    pub fn usage(&self) -> Usage {
        let files = self.all_files();
        Usage { files: files.len(), bytes: files.iter().map(|file| file.bytes).sum() }
    }

    fn all_files(&self) -> Vec<Listed> {
        folders(&self.root).iter().flat_map(|folder| list(folder).unwrap_or_default()).collect()
    }
}

/// Makes a folder that only this user may look into, where there is none.
fn make_private(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// The folders of installations.
fn folders(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let is_own = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| is_own(path) && path.is_dir()).collect()
}

/// The segments in a folder.
fn list(folder: &Path) -> io::Result<Vec<Listed>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|suffix| suffix != SUFFIX) {
            continue;
        }
        // A link is not followed.
        let Ok(data) = fs::symlink_metadata(&path) else { continue };
        if data.is_file() {
            let used = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push(Listed { path, bytes: data.len(), used });
        }
    }
    Ok(found)
}

/// Removes what is left of processes that were killed, by the time of its last change.
fn remove_left(folder: &Path, is_left: impl Fn(SystemTime) -> bool) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_new = path.extension().is_some_and(|suffix| suffix == "new");
        let time = entry.metadata().and_then(|data| data.modified());
        if is_new && time.is_ok_and(&is_left) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether a time is long ago, or by somebody else's clock far ahead.
fn is_stale(time: SystemTime) -> bool {
    let away = time.elapsed().unwrap_or_else(|ahead| ahead.duration());
    away.as_secs() > STALE_SECONDS
}
