// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A measured value, what it must reach, and whether it does.

/// What a figure must reach, in the figure's own unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Not further from `ideal` than `tolerance`.
    Near {
        ideal: f64,
        tolerance: f64,
    },
    AtMost(f64),
    AtLeast(f64),
    /// At most this many times the kernel's own scheduler, measured in the same way.
    TimesControl(f64),
    /// Not further from the kernel's own scheduler than this part of its value.
    NearControl(f64),
    /// For reading only.
    Printed,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    pub value: f64,
    pub bound: Bound,
}

impl Figure {
    pub fn new(name: impl Into<String>, unit: &'static str, value: f64, bound: Bound) -> Self {
        Figure {
            name: name.into(),
            unit,
            value,
            bound,
        }
    }

    /// Whether the bound is held; nothing where there is no bound, or no control to compare with.
    pub fn holds(&self, control: Option<f64>) -> Option<bool> {
        match self.bound {
            Bound::Near { ideal, tolerance } => Some((self.value - ideal).abs() <= tolerance),
            Bound::AtMost(most) => Some(self.value <= most),
            Bound::AtLeast(least) => Some(self.value >= least),
            Bound::TimesControl(most) => control.map(|control| self.value <= most * control),
            Bound::NearControl(part) => control.map(|control| (self.value - control).abs() <= part * control),
            Bound::Printed => None,
        }
    }

    /// What must be reached, for the table.
    pub fn must(&self) -> String {
        match self.bound {
            Bound::Near { ideal, tolerance } => format!("{} +- {}", short(ideal), short(tolerance)),
            Bound::AtMost(most) => format!("<= {}", short(most)),
            Bound::AtLeast(least) => format!(">= {}", short(least)),
            Bound::TimesControl(most) => format!("<= {most:.2} x EEVDF"),
            Bound::NearControl(part) => format!("EEVDF +- {}%", short(part * 100.)),
            Bound::Printed => String::new(),
        }
    }
}

/// Enough digits to tell apart what the bounds tell apart.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000. => 0,
        size if size >= 100. => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_held_up_to_its_edge_and_not_beyond() {
        let near = |value| {
            Figure::new(
                "x",
                "%",
                value,
                Bound::Near {
                    ideal: 20.,
                    tolerance: 0.25,
                },
            )
            .holds(None)
        };
        assert_eq!(near(20.25), Some(true));
        assert_eq!(near(20.26), Some(false));
        assert_eq!(near(19.74), Some(false));
        let times = Figure::new("x", "us", 110., Bound::TimesControl(1.1));
        assert_eq!(times.holds(Some(100.)), Some(true));
        assert_eq!(times.holds(Some(99.)), Some(false));
        assert_eq!(times.holds(None), None);
        assert_eq!(
            Figure::new("x", "us", 94., Bound::NearControl(0.05)).holds(Some(100.)),
            Some(false)
        );
        assert_eq!(Figure::new("x", "us", 1e9, Bound::Printed).holds(Some(1.)), None);
    }
}
