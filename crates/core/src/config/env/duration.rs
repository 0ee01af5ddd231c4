//! Durations in Go's notation: `300s`, `1m30s`, `1.5h`.

const EXPECTED: &str = "expected a duration such as 300s or 1m30s";

/// Parses a duration that must be a whole number of seconds.
pub(super) fn whole_seconds(text: &str) -> Result<u64, String> {
    if text.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("{text:?} has no unit; expected {text}s if seconds are meant"));
    }
    let nanoseconds = nanoseconds(text).ok_or_else(|| format!("{text:?} is not a duration; {EXPECTED}"))?;
    if nanoseconds % 1_000_000_000 != 0 {
        return Err(format!("{text:?} is not a number of whole seconds; {EXPECTED}"));
    }
    u64::try_from(nanoseconds / 1_000_000_000).map_err(|_| format!("{text:?} is too long; {EXPECTED}"))
}

fn nanoseconds(text: &str) -> Option<u128> {
    let mut total = 0_u128;
    let mut rest = text;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total = total.checked_add(scaled(number, unit_size(unit)?)?)?;
        rest = next;
    }
    Some(total)
}

/// A decimal number times the size of its unit. Fractions of a nanosecond are dropped, as in Go.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let parts_of_one = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = digits(fraction)?.checked_mul(unit)? / parts_of_one;
    digits(whole)?.checked_mul(unit)?.checked_add(fraction)
}

fn unit_size(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_writes() {
        let seconds = |text: &str| whole_seconds(text).unwrap();
        assert_eq!(seconds("300s"), 300);
        assert_eq!(seconds("1m30s"), 90);
        assert_eq!(seconds("5m0s"), 300);
        assert_eq!(seconds("1.5h"), 5400);
        assert_eq!(seconds(".5m"), 30);
        assert_eq!(seconds("3000ms"), 3);
        assert_eq!(seconds("500ms500000us"), 1);
        assert_eq!(seconds("1000000µs1000000μs1000000000ns"), 3);
        assert_eq!(seconds("0s"), 0);
    }

    #[test]
    fn says_what_it_wants() {
        let refusal = |text: &str| whole_seconds(text).unwrap_err();
        assert_eq!(refusal("300"), r#""300" has no unit; expected 300s if seconds are meant"#);
        assert_eq!(
            refusal("1500ms"),
            r#""1500ms" is not a number of whole seconds; expected a duration such as 300s or 1m30s"#
        );
        for text in ["-5s", "s", "5 s", "5x", "five", ".s", "1..5s", "5s5", "1e3s"] {
            assert_eq!(
                refusal(text),
                format!("{text:?} is not a duration; expected a duration such as 300s or 1m30s")
            );
        }
        assert!(refusal(&format!("{}h", "9".repeat(40))).contains("is not a duration"));
        assert!(refusal(&format!("{}s", "9".repeat(24))).contains("is too long"));
    }
}
