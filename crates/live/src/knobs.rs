// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Knobs that the kernel's own files do not have: extended attributes `user.plimsoll.*` of cgroup directories.
use crate::intf::Knobs;
use crate::{Error, Result};
use plimsoll_policy_sys as pl;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A knob: its name, what it may be, and what it is where it was never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    HeadroomPercent,
    ToleranceUs,
    BurstUs,
    OnsetPercent,
}

impl Knob {
    pub const ALL: [Knob; 4] = [
        Knob::HeadroomPercent,
        Knob::ToleranceUs,
        Knob::BurstUs,
        Knob::OnsetPercent,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Knob::HeadroomPercent => "headroom_percent",
            Knob::ToleranceUs => "tolerance_us",
            Knob::BurstUs => "burst_us",
            Knob::OnsetPercent => "onset_percent",
        }
    }

    pub fn least(self) -> u64 {
        match self {
            Knob::ToleranceUs => 1,
            _ => 0,
        }
    }

    pub fn most(self) -> u64 {
        match self {
            Knob::HeadroomPercent => 100,
            Knob::OnsetPercent => *pl::BwLimits::NONE.allowed(pl::BwPart::Onset, false).end(),
            Knob::ToleranceUs => 1_000_000,
            Knob::BurstUs => *pl::BwLimits::NONE.allowed(pl::BwPart::Burst, false).end(),
        }
    }

    /// `knob=value`; an empty value takes the knob away.
    pub fn parse(text: &str) -> Result<(Knob, Option<u64>)> {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Error::Input(format!(
                "`{text}`: a knob is set as knob=value, and taken away as knob="
            ))
        })?;
        let names = Self::ALL.map(Knob::name).join(", ");
        let knob = Self::ALL
            .into_iter()
            .find(|knob| knob.name() == name)
            .ok_or_else(|| Error::Input(format!("unknown knob \"{name}\"; known: {names}")))?;
        if value.is_empty() {
            return Ok((knob, None));
        }
        knob.number(value).map(|number| (knob, Some(number)))
    }

    /// A value as text, held to the knob's range.
    fn number(self, text: &str) -> Result<u64> {
        match text.parse() {
            Ok(number) if (self.least()..=self.most()).contains(&number) => Ok(number),
            _ => Err(Error::Input(format!(
                "{}={text}: allowed are whole numbers from {} to {}",
                self.name(),
                self.least(),
                self.most()
            ))),
        }
    }

    fn attribute(self) -> CString {
        CString::new(format!("user.plimsoll.{}", self.name())).expect("names hold no zero")
    }

    /// `None`: not set. What other tools wrote may be anything: an error names cgroup, knob, value and range.
    pub fn read(self, cgroup: &Path) -> Result<Option<u64>> {
        let mut value = [0u8; 64];
        // SAFETY: the buffer is as long as said.
        let length = unsafe {
            libc::getxattr(
                c_path(cgroup).as_ptr(),
                self.attribute().as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        let text = match usize::try_from(length) {
            Ok(length) => String::from_utf8_lossy(&value[..length]).into_owned(),
            Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::ERANGE) => format!("(more than {} bytes)", value.len()),
                // Not there, or the cgroup is gone.
                _ => return Ok(None),
            },
        };
        // setfattr writes a text as it is, a C program perhaps with its zero.
        let text = text.trim_end_matches('\0').trim();
        match self.number(text) {
            Ok(number) => Ok(Some(number)),
            Err(error) => Err(Error::Input(format!("{}: {error}", cgroup.display()))),
        }
    }

    pub fn write(self, cgroup: &Path, value: Option<u64>) -> Result<()> {
        let text = value.map(|number| number.to_string());
        // SAFETY: strings end in zero; the value is as long as said.
        let failed = unsafe {
            match &text {
                Some(text) => libc::setxattr(
                    c_path(cgroup).as_ptr(),
                    self.attribute().as_ptr(),
                    text.as_ptr().cast(),
                    text.len(),
                    0,
                ),
                None => libc::removexattr(c_path(cgroup).as_ptr(), self.attribute().as_ptr()),
            }
        } != 0;
        let error = std::io::Error::last_os_error();
        if failed && !(value.is_none() && error.raw_os_error() == Some(libc::ENODATA)) {
            return Err(Error::Input(format!(
                "{}: cannot set user.plimsoll.{}: {error}",
                cgroup.display(),
                self.name()
            )));
        }
        Ok(())
    }
}

/// All knobs of one cgroup; `None`: not set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnobValues {
    pub headroom_percent: Option<u64>,
    pub tolerance_us: Option<u64>,
    pub burst_us: Option<u64>,
    pub onset_percent: Option<u64>,
}

impl KnobValues {
    pub fn read(cgroup: &Path) -> Result<Self> {
        let mut values = Self::default();
        if has_knobs(cgroup) {
            only_roots(cgroup)?;
            for knob in Knob::ALL {
                values.set(knob, knob.read(cgroup)?);
            }
        }
        Ok(values)
    }

    pub fn set(&mut self, knob: Knob, value: Option<u64>) {
        match knob {
            Knob::HeadroomPercent => self.headroom_percent = value,
            Knob::ToleranceUs => self.tolerance_us = value,
            Knob::BurstUs => self.burst_us = value,
            Knob::OnsetPercent => self.onset_percent = value,
        }
    }

    pub fn get(&self, knob: Knob) -> Option<u64> {
        match knob {
            Knob::HeadroomPercent => self.headroom_percent,
            Knob::ToleranceUs => self.tolerance_us,
            Knob::BurstUs => self.burst_us,
            Knob::OnsetPercent => self.onset_percent,
        }
    }

    /// Whether the policy takes these knobs together with the group's quota. `quota_us` `None`: no limit.
    pub fn check(&self, cgroup: &Path, quota_us: Option<u64>, period_us: u64) -> Result<()> {
        let limits = pl::BwLimits {
            quota_ns: quota_us.map_or(pl::UNLIMITED, |quota_us| quota_us.saturating_mul(1000)),
            period_ns: period_us * 1000,
            burst_ns: self.burst_us.unwrap_or(0).saturating_mul(1000),
            onset_percent: self.onset_percent.unwrap_or(0) as u32,
            reserved: 0,
        };
        match limits.refused(false) {
            None => Ok(()),
            Some(pl::BwPart::Burst) => Err(Error::Input(format!(
                "{}: burst_us={}: allowed are whole numbers from 0 to {}",
                cgroup.display(),
                self.burst_us.unwrap_or(0),
                Knob::BurstUs.most()
            ))),
            Some(part) => {
                let (allowed, unit) = match part {
                    pl::BwPart::Onset => (limits.allowed(part, false), "%"),
                    _ => (pl::BwLimits::NONE.allowed(part, false), "us"),
                };
                Err(Error::Input(format!(
                    "{}: {part:?}: allowed is {} to {} {unit}",
                    cgroup.display(),
                    allowed.start(),
                    allowed.end()
                )))
            }
        }
    }

    pub(crate) fn for_bpf(&self, cgroup_id: u64) -> Knobs {
        Knobs {
            cgroup_id,
            burst_us: self.burst_us.unwrap_or(0),
            tolerance_us: self.tolerance_us.unwrap_or(0),
            burst_set: self.burst_us.is_some().into(),
            onset_percent: self.onset_percent.unwrap_or(0) as u32,
            headroom_percent: self.headroom_percent.unwrap_or(0) as u32,
            result: 0,
        }
    }
}

/// Refuses a cgroup whose knobs others than root could write. The owner of a delegated cgroup may write attributes of its
/// directory, but not its limits, which are in files of root's: burst_us would lift them, and
/// headroom_percent would take the machine from all others.
pub fn only_roots(cgroup: &Path) -> Result<()> {
    let Ok(found) = std::fs::metadata(cgroup) else {
        return Ok(()); // it is gone, and its knobs with it
    };
    if found.uid() == 0 && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::Input(format!(
        "{}: knobs of a directory of uid {}, mode {:o}: allowed are those of directories that root alone may write",
        cgroup.display(),
        found.uid(),
        found.mode() & 0o7777
    )))
}

/// Whether a cgroup has any attribute of ours: one system call, for most cgroups the only one.
fn has_knobs(cgroup: &Path) -> bool {
    let mut names = [0u8; 4096];
    // SAFETY: the buffer is as long as said.
    let length = unsafe { libc::listxattr(c_path(cgroup).as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    match usize::try_from(length) {
        Ok(length) => names[..length]
            .split(|&byte| byte == 0)
            .any(|name| name.starts_with(b"user.plimsoll.")),
        // Too many names to list: look at each knob.
        Err(_) => std::io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE),
    }
}

/// The number by which the kernel knows a cgroup: its directory's inode.
pub fn cgroup_id(cgroup: &Path) -> Result<u64> {
    let input = |message: String| Error::Input(format!("{}: {message}", cgroup.display()));
    let metadata = std::fs::metadata(cgroup).map_err(|error| input(error.to_string()))?;
    if !cgroup.join("cgroup.controllers").exists() {
        return Err(input("not a directory of a cgroup v2 hierarchy".into()));
    }
    Ok(metadata.ino())
}

/// Whether a directory is the root of its hierarchy, which takes no limits and no knobs.
pub fn is_root(cgroup: &Path) -> bool {
    !cgroup.join("cgroup.type").exists()
}

/// `cpu.max` of a cgroup: quota (`None`: max) and period.
pub fn cpu_max(cgroup: &Path) -> (Option<u64>, u64) {
    let text = std::fs::read_to_string(cgroup.join("cpu.max")).unwrap_or_default();
    let mut words = text.split_whitespace();
    let quota = words.next().and_then(|word| word.parse().ok());
    (
        quota,
        words.next().and_then(|word| word.parse().ok()).unwrap_or(100_000),
    )
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_parsed_and_held_to_their_range() {
        assert_eq!(
            Knob::parse("headroom_percent=30").unwrap(),
            (Knob::HeadroomPercent, Some(30))
        );
        assert_eq!(Knob::parse("burst_us=").unwrap(), (Knob::BurstUs, None));
        assert_eq!(
            Knob::parse("headroom_percent=101").unwrap_err().to_string(),
            "headroom_percent=101: allowed are whole numbers from 0 to 100"
        );
        // A tolerance of nothing would be the machine's: refused rather than misunderstood.
        assert_eq!(
            Knob::parse("tolerance_us=0").unwrap_err().to_string(),
            "tolerance_us=0: allowed are whole numbers from 1 to 1000000"
        );
        for wrong in [
            "burst_us=-1",
            "burst_us=1.5",
            "burst_us=1ms",
            "burst_us=17592186044416",
        ] {
            assert!(Knob::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Knob::parse("headrom=3")
            .unwrap_err()
            .to_string()
            .contains("known: headroom_percent, tolerance_us"));
        assert!(Knob::parse("burst_us").is_err());
    }

    #[test]
    fn a_burst_beyond_what_can_be_represented_is_refused_with_the_cgroup() {
        let values = KnobValues {
            burst_us: Some((1 << 44) - 1),
            ..Default::default()
        };
        let cgroup = Path::new("/sys/fs/cgroup/web");
        assert!(values.check(cgroup, None, 100_000).is_ok());
        let error = KnobValues {
            burst_us: Some(1 << 44),
            ..values
        }
        .check(cgroup, Some(1_000), 100_000);
        assert!(error
            .unwrap_err()
            .to_string()
            .starts_with("/sys/fs/cgroup/web: burst_us="));
    }
}
