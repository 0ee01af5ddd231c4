//! Formats of text in the configuration. Each format is a pattern, which goes into the schema, and a function, which is
//! authoritative: it also enforces the limits that a pattern cannot express.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One format of text.
#[derive(Debug)]
pub(super) struct Format {
    /// For the schema. Matches everything that `accepts` accepts.
    pub(super) pattern: &'static str,
    /// For messages: completes "expected …".
    pub(super) expected: &'static str,
    /// Returns whether a text has this format.
    pub(super) accepts: fn(&str) -> bool,
}

pub(super) const DNS_LABEL: Format = Format {
    pattern: "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
    expected: "at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
    accepts: is_dns_label,
};

pub(super) const DNS_LABEL_OR_EMPTY: Format = Format {
    pattern: "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$",
    expected: "nothing, or at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
    accepts: |text| text.is_empty() || is_dns_label(text),
};

pub(super) const DNS_SUBDOMAIN: Format = Format {
    pattern: r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    expected: "at most 253 lower case letters, digits, '-' and '.', with a letter or digit at both ends of each part",
    accepts: is_dns_subdomain,
};

pub(super) const DNS_SUBDOMAIN_OR_EMPTY: Format = Format {
    pattern: r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
    expected: "nothing, or at most 253 lower case letters, digits, '-' and '.'",
    accepts: |text| text.is_empty() || is_dns_subdomain(text),
};

pub(super) const DOMAIN_OR_ADDRESS: Format = Format {
    pattern: r"^[A-Za-z0-9_:][-A-Za-z0-9_.:]*$",
    expected: "a DNS name such as example.com, or an IP address",
    accepts: |text| is_domain(text) || text.parse::<IpAddr>().is_ok(),
};

pub(super) const NAMESPACED_NAME: Format = Format {
    pattern: r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
    expected: "a namespace and a name, such as kube-system/kube-dns",
    accepts: |text| {
        text.split_once('/').is_some_and(|(space, name)| is_dns_label(space) && is_dns_subdomain(name))
    },
};

pub(super) const HOST_AND_PORT: Format = Format {
    pattern: r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_][-A-Za-z0-9_.]*):[0-9]{1,5}$",
    expected: "a host and a port, such as example.com:443 or [2001:db8::1]:443",
    accepts: |text| text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port)),
};

pub(super) const HTTP_URL: Format = Format {
    pattern: r"^https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_][-A-Za-z0-9_.]*)(:[0-9]{1,5})?([/?][!-~]*)?$",
    expected: "an address that starts with http:// or https://, without a user and with special characters escaped",
    accepts: is_http_url,
};

pub(super) const ABSOLUTE_PATH: Format = Format {
    pattern: "^/",
    expected: "a path that starts with /",
    accepts: |text| text.starts_with('/') && !text.contains('\0'),
};

pub(super) const LABEL_KEY: Format = Format {
    pattern: concat!(
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
        r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
    ),
    expected: "a name of at most 63 letters, digits, '-', '_' and '.', with or without a DNS name and '/' before it",
    accepts: is_label_key,
};

pub(super) const LABEL_VALUE: Format = Format {
    pattern: "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$",
    expected: "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    accepts: is_label_value,
};

pub(super) const IMAGE_REPOSITORY: Format = Format {
    pattern: r"^[A-Za-z0-9][-A-Za-z0-9.]*(:[0-9]+)?(/[a-z0-9][-a-z0-9._]*)*$",
    expected: "the registry and name of an image, such as registry.example.com/team/image, without a tag",
    accepts: is_image_repository,
};

pub(super) const IMAGE_TAG_OR_EMPTY: Format = Format {
    pattern: "^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127}(@sha256:[a-f0-9]{64})?)?$",
    expected: "a tag such as 1.2.0, with or without @sha256: and 64 hexadecimal digits",
    accepts: |text| text.is_empty() || is_image_tag(text),
};

pub(super) const QUANTITY: Format = Format {
    pattern: r"^([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
    expected: "a Kubernetes quantity, such as 50m, 1.5 or 64Mi",
    accepts: |text| quantity(text).is_some(),
};

/// All formats. A pattern in the schema is looked up here.
pub(super) const ALL: [&Format; 14] = [
    &DNS_LABEL,
    &DNS_LABEL_OR_EMPTY,
    &DNS_SUBDOMAIN,
    &DNS_SUBDOMAIN_OR_EMPTY,
    &DOMAIN_OR_ADDRESS,
    &NAMESPACED_NAME,
    &HOST_AND_PORT,
    &HTTP_URL,
    &ABSOLUTE_PATH,
    &LABEL_KEY,
    &LABEL_VALUE,
    &IMAGE_REPOSITORY,
    &IMAGE_TAG_OR_EMPTY,
    &QUANTITY,
];

fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && bounded_by(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), |c| c == '-')
}

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text
            .split('.')
            .all(|part| bounded_by(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), |c| c == '-'))
}

/// Looser than Kubernetes names: resolvers accept upper case letters and underscores, too.
fn is_domain(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let only_digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    name.len() <= 253
        && !name.rsplit('.').next().is_none_or(only_digits)
        && name.split('.').all(|part| {
            part.len() <= 63 && bounded_by(part, |c| c.is_ascii_alphanumeric() || c == '_', |c| c == '-')
        })
}

/// A name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => is_domain(text) || text.parse::<Ipv4Addr>().is_ok(),
    }
}

fn is_port(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_http_url(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        return false;
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let is_authority = is_host(authority)
        || authority.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port));
    is_authority && path.chars().all(|c| c.is_ascii_graphic() && c != '#')
}

/// Returns whether a text is a valid key of a label, a taint or an annotation.
pub(super) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Returns whether a text is a valid value of a label or a taint.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || text.len() <= 63
            && bounded_by(text, |c| c.is_ascii_alphanumeric(), |c| matches!(c, '-' | '_' | '.'))
}

fn is_image_repository(text: &str) -> bool {
    let mut parts = text.split('/');
    let host = parts.next().unwrap_or_default();
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let mut path = parts.peekable();
    let port_is_fine =
        port.is_none_or(|port| path.peek().is_some() && port.parse::<u16>().is_ok_and(|port| port > 0));
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_'))
    };
    let name_is_fine = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    text.len() <= 255 && name_is_fine && port_is_fine && path.all(is_part)
}

fn is_image_tag(text: &str) -> bool {
    let (tag, digest) = text.split_once("@sha256:").map_or((text, None), |(tag, digest)| (tag, Some(digest)));
    let hexadecimal = |digest: &str| {
        digest.len() == 64 && digest.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    };
    tag.len() <= 128
        && tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && digest.is_none_or(hexadecimal)
}

/// The value of a Kubernetes quantity, precise enough to tell which of two is larger.
pub(super) fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 2_f64.powi(10),
        "Mi" => 2_f64.powi(20),
        "Gi" => 2_f64.powi(30),
        "Ti" => 2_f64.powi(40),
        "Pi" => 2_f64.powi(50),
        "Ei" => 2_f64.powi(60),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

fn bounded_by(text: &str, at_ends: impl Fn(char) -> bool, inside: impl Fn(char) -> bool) -> bool {
    text.starts_with(&at_ends) && text.ends_with(&at_ends) && text.chars().all(|c| at_ends(c) || inside(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &Format, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!((format.accepts)(text), "{text:?} is {}", format.expected);
        }
        for text in bad {
            assert!(!(format.accepts)(text), "{text:?} is not {}", format.expected);
        }
    }

    #[test]
    fn kubernetes_names() {
        let long = "a".repeat(64);
        let very_long = format!("{}a", "a.".repeat(127));
        check(&DNS_LABEL, &["a", "kube-system", "0"], &["", "-a", "a-", "A", "a.b", &long]);
        check(&DNS_LABEL_OR_EMPTY, &["", "a"], &["-", "a.b"]);
        check(&DNS_SUBDOMAIN, &["a.b", "a", &long], &["", ".a", "a..b", "a.-b", "A", &very_long]);
        check(&DNS_SUBDOMAIN_OR_EMPTY, &["", "a.b"], &["a_b"]);
    }

    #[test]
    fn domains_and_addresses() {
        check(
            &DOMAIN_OR_ADDRESS,
            &[
                "example.com",
                "example.com.",
                "localhost",
                "_sip._tcp.Example.com",
                "1.1.1.1",
                "::1",
                "2001:db8::7",
            ],
            &[
                "",
                ".",
                "a..b",
                "-a.com",
                "1.2.3",
                "1.1.1.256",
                "300",
                "https://example.com",
                "a b",
                "example.com:53",
            ],
        );
    }

    #[test]
    fn peers() {
        let long = format!("a/{}", "b".repeat(254));
        check(
            &NAMESPACED_NAME,
            &["kube-system/kube-dns", "a/b.c"],
            &["", "a", "a/", "/b", "a.b/c", "a/b/c", &long],
        );
        check(
            &HOST_AND_PORT,
            &["example.com:443", "10.0.0.1:1", "[::1]:65535", "localhost:80"],
            &[
                "",
                "a",
                "a:",
                ":1",
                "a:0",
                "a:65536",
                "a:+1",
                "::1:80",
                "[a]:80",
                "1.2.3:80",
                "a b:80",
                "http://a:80",
            ],
        );
        check(
            &HTTP_URL,
            &[
                "http://a",
                "https://a.b:8443/c?d=e%20f",
                "http://[::1]:1/",
                "https://10.0.0.1?x",
                "http://a/~b:c@d",
            ],
            &[
                "",
                "a",
                "ftp://a",
                "http://",
                "http:///b",
                "http://a:b",
                "http://u:p@a/",
                "http://a/ b",
                "http://a/#b",
                "http://a/ä",
            ],
        );
        check(&ABSOLUTE_PATH, &["/", "/a b/c"], &["", "a", "./a", "/a\0"]);
    }

    #[test]
    fn labels() {
        let long = "a".repeat(64);
        check(
            &LABEL_KEY,
            &["a", "node-ready/unverified", "a.b/C_d.e-f", "x/y"],
            &["", "/", "a/", "/a", "a/b/c", "A/b", "-a", "a b", &long],
        );
        check(&LABEL_VALUE, &["", "true", "A.b_c-d"], &["-", "a-", "a/b", "a b", &long]);
    }

    #[test]
    fn images() {
        let digest = format!("1.2@sha256:{}", "0".repeat(64));
        check(
            &IMAGE_REPOSITORY,
            &["busybox", "ghcr.io/a/b", "localhost:5000/a_b", "Registry.example.com/a"],
            &["", "a:1.2", "ghcr.io/a/b:1", "ghcr.io/A", "a//b", "a/", "a b", "h:0/a", "a@sha256:00"],
        );
        check(
            &IMAGE_TAG_OR_EMPTY,
            &["", "1.2.0", "v1_x-y", &digest],
            &["-a", "a b", "a:b", "1@sha256:00", "@sha256:00"],
        );
    }

    #[test]
    fn quantities() {
        check(&QUANTITY, &["1", "1.", ".5", "50m", "64Mi"], &["", "m", "1x", "1.2.3", "-1", "64 Mi", "."]);
        assert_eq!(quantity("1Ki"), Some(1024.0));
        assert_eq!(quantity("1.5k"), Some(1500.0));
        assert!(quantity("100m") < quantity("1"));
        let rising = ["m", "", "k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti", "P", "Pi", "E", "Ei"];
        let sizes: Vec<f64> = rising.iter().map(|suffix| quantity(&format!("1{suffix}")).unwrap()).collect();
        assert!(sizes.is_sorted_by(|one, next| one < next), "{sizes:?}");
    }

    #[test]
    fn nothing_is_longer_than_kubernetes_allows() {
        let names = |parts: usize| vec!["a".repeat(63); parts].join(".");
        check(&DOMAIN_OR_ADDRESS, &[&names(3)], &[&names(4), &"a".repeat(64)]);
        check(&LABEL_KEY, &[&format!("{}/a", names(3))], &[&format!("{}/a", names(4))]);
        check(&IMAGE_REPOSITORY, &[&"a".repeat(255)], &[&"a".repeat(256)]);
        check(&IMAGE_TAG_OR_EMPTY, &[&"a".repeat(128)], &[&"a".repeat(129)]);
    }

    #[test]
    fn no_two_formats_share_a_pattern() {
        let patterns: std::collections::BTreeSet<&str> = ALL.iter().map(|format| format.pattern).collect();
        assert_eq!(patterns.len(), ALL.len());
    }
}
