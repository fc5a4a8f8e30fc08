// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's own apt sources, in both formats, read to learn which mirror of Debian it uses.

/// One source of binary packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub uris: Vec<String>,
    pub suites: Vec<String>,
    pub components: Vec<String>,
}

/// Reads the one-line format: `deb [options] URI SUITE COMPONENT...` (sources.list(5)).
pub fn parse_one_line(text: &str) -> Vec<Source> {
    text.lines()
        .filter_map(|line| {
            let line = line.split('#').next().unwrap_or("").trim();
            let rest = line.strip_prefix("deb")?;
            if !rest.starts_with([' ', '\t', '[']) {
                return None; // deb-src
            }
            let rest = rest.trim_start();
            let rest = match rest.strip_prefix('[') {
                Some(options) => options.split_once(']')?.1,
                None => rest,
            };
            let mut words = rest.split_whitespace().map(String::from);
            Some(Source {
                uris: vec![words.next()?],
                suites: vec![words.next()?],
                components: words.collect(),
            })
        })
        .collect()
}

/// Reads the deb822 format: stanzas of `Field: value`, continued by indented lines, separated by empty lines.
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(source_of(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_string()));
        }
    }
    sources
}

fn source_of(fields: &[(String, String)]) -> Option<Source> {
    let words = |name: &str| -> Vec<String> {
        let value = fields
            .iter()
            .find(|(field, _)| field == name)
            .map_or("", |(_, value)| value);
        value.split_whitespace().map(String::from).collect()
    };
    let off = words("enabled")
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case("no"));
    let binary = words("types").iter().any(|word| word == "deb");
    let source = Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
    };
    (binary && !off && !source.uris.is_empty()).then_some(source)
}

/// The mirror that serves Debian's own archive: the first source with the component `main` of the release that is
/// installed (`codename`), or of one of Debian's rolling names. Security and third-party archives carry other suites.
pub fn debian_mirror(sources: &[Source], codename: &str) -> Option<String> {
    const ROLLING: [&str; 6] = [
        "oldstable",
        "stable",
        "testing",
        "unstable",
        "sid",
        "oldoldstable",
    ];
    sources
        .iter()
        .find(|source| {
            source.components.iter().any(|component| component == "main")
                && source
                    .suites
                    .iter()
                    .any(|suite| suite == codename || ROLLING.contains(&suite.as_str()))
        })
        .and_then(|source| source.uris.first().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_give_the_same_sources() {
        let old = "# comment\n\
            deb [signed-by=/usr/share/keyrings/a.gpg arch=amd64] http://mirror.example/debian trixie main contrib\n\
            deb-src http://mirror.example/debian trixie main\n\
            deb http://mirror.example/security trixie-security main # trailing\n";
        let new = "# comment\nTypes: deb deb-src\nURIs: http://mirror.example/debian\nSuites: trixie\n\
            Components: main\n contrib\nSigned-By: /usr/share/keyrings/a.gpg\n\n\
            types: deb\nuris: http://mirror.example/security\nsuites: trixie-security\ncomponents: main\n";
        assert_eq!(parse_one_line(old), parse_deb822(new));
        assert_eq!(parse_one_line(old).len(), 2);
        assert_eq!(parse_one_line(old)[0].components, ["main", "contrib"]);
    }

    #[test]
    fn disabled_and_source_only_stanzas_are_left_out() {
        let text =
            "Types: deb\nURIs: http://a.example/debian\nSuites: sid\nComponents: main\nEnabled: no\n\n\
            Types: deb-src\nURIs: http://b.example/debian\nSuites: sid\nComponents: main\n";
        assert_eq!(parse_deb822(text), []);
    }

    #[test]
    fn the_mirror_is_debians_own_archive_not_security_nor_a_third_party() {
        let sources = parse_one_line(
            "deb http://third.example/linux/debian trixie stable\n\
             deb http://mirror.example/debian-security trixie-security main\n\
             deb http://cloud.example/apt cloud-sdk main\n\
             deb http://mirror.example/debian trixie main\n",
        );
        assert_eq!(
            debian_mirror(&sources, "trixie").as_deref(),
            Some("http://mirror.example/debian")
        );
        assert_eq!(debian_mirror(&sources[..3], "trixie"), None);
    }

    #[test]
    fn broken_lines_are_skipped() {
        assert_eq!(
            parse_one_line("deb\ndeb [arch=amd64 http://x y\ndeb http://only-a-uri\nnonsense\n"),
            []
        );
        assert_eq!(parse_deb822("no colon here\n continued\n\n:\n"), []);
    }
}
