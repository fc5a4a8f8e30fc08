// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series as Prometheus, OpenMetrics or CSV have them, through to the table, the page and the patches.
#![no_main]
use libfuzzer_sys::fuzz_target;
use plimsoll_screen::{html, input, patches, write_csv, Collector, Options};

fuzz_target!(|data: &[u8]| {
    let mut series = Vec::new();
    let Ok(said) = input::read(data, &mut |one| series.push(one)) else {
        return;
    };
    assert_eq!(said.series, series.len() as u64);
    let mut collector = Collector::new(None);
    series.into_iter().for_each(|one| collector.take(one, None));
    let found = collector.finish(&Options::default());
    write_csv(&found.rows);
    html(&found, &[]);
    patches(&found);
});
