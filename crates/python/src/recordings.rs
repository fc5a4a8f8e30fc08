// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `replay` and `plan` are asked about: recordings of one service.
use crate::error;
use plimsoll_plan::{Recordings, SourceError};
use plimsoll_trace::RequestSpec;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Seeds are in columns of signed numbers.
const SEED_MAX: u64 = i64::MAX as u64;

/// Files, and how they are to be read.
pub struct Asked {
    paths: Vec<PathBuf>,
    group: Option<String>,
    request: Option<RequestSpec>,
}

impl Asked {
    /// `recordings`: a path or several.
    pub fn new(
        recordings: &Bound<'_, PyAny>,
        group: Option<String>,
        request: Option<&str>,
    ) -> PyResult<Asked> {
        let py = recordings.py();
        let request = request.map(|text| {
            let read = text.parse::<RequestSpec>();
            read.map_err(|_| error::argument(py, "request", &format!("{text:?}"), RequestSpec::FORMS))
        });
        Ok(Asked {
            paths: paths(recordings)?,
            group,
            request: request.transpose()?,
        })
    }

    pub fn read(&self, cancel: &Arc<AtomicBool>) -> Result<Recordings, SourceError> {
        let read = Recordings::read_until(&self.paths, self.group.as_deref(), self.request.as_ref(), cancel)?;
        Ok(read.cancelled_by(cancel))
    }
}

fn paths(recordings: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    // A text is a sequence of texts, too.
    if let Ok(one) = recordings.extract::<PathBuf>() {
        return Ok(vec![one]);
    }
    let all: Vec<PathBuf> = recordings.extract().map_err(|_| {
        PyTypeError::new_err("recordings: neither a path nor a list of paths; allowed: one path or more")
    })?;
    match all.is_empty() {
        true => Err(error::argument(
            recordings.py(),
            "recordings",
            &"none",
            "one path or more",
        )),
        false => Ok(all),
    }
}

/// A text or several.
pub fn texts(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if value.is_instance_of::<PyString>() {
        return Ok(vec![value.extract()?]);
    }
    value.extract().map_err(|_| {
        PyTypeError::new_err(format!(
            "{name}: neither a str nor a list of them; allowed: one or more"
        ))
    })
}

/// # Errors
/// It is too large.
pub fn check_seed(seed: Option<u64>) -> PyResult<()> {
    match seed {
        Some(seed) if seed > SEED_MAX => {
            let message = format!("seed: {seed}; allowed: 0 to {SEED_MAX}");
            Err(PyValueError::new_err(message))
        }
        _ => Ok(()),
    }
}
