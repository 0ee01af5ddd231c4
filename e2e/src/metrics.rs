//! Metrics as a replica serves them.

use std::collections::BTreeMap;

/// Every series of one scrape.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    series: BTreeMap<String, f64>,
}

impl Metrics {
    /// Parses the text format, and ignores everything that is not a series.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            // Label values may contain spaces, so the name ends at the last brace.
            let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
            let value = line[end..].split_whitespace().next()?.parse().ok()?;
            Some((line[..end].to_owned(), value))
        });
        Self { series: series.collect() }
    }

    /// The sum of all series with this name and these labels, if there are any.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let matching = self.series.iter().filter(|(series, _)| {
            let (own, rest) = series.split_once('{').unwrap_or((series, ""));
            let has =
                |label: &String| rest.starts_with(label.as_str()) || rest.contains(&format!(",{label}"));
            own == name && wanted.iter().all(has)
        });
        matching.map(|(_, value)| *value).reduce(|sum, value| sum + value)
    }

    /// All series by name and labels as they were served, for messages and for other queries.
    #[must_use]
    pub fn series(&self) -> &BTreeMap<String, f64> {
        &self.series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_labels() {
        let metrics = Metrics::parse(
            "# HELP nodes Nodes by phase.\nnodes{phase=\"failed\",why=\"a b} c\"} 2\nnodes{phase=\"verified\"} 3.0 1700\n\
             nodes_total 7\nbroken\n# EOF\n",
        );
        assert_eq!(metrics.value("nodes", &[]), Some(5.0));
        assert_eq!(metrics.value("nodes", &[("phase", "failed")]), Some(2.0));
        assert_eq!(metrics.value("nodes", &[("why", "a b} c"), ("phase", "failed")]), Some(2.0));
        assert_eq!(metrics.value("nodes", &[("hase", "failed")]), None);
        assert_eq!(metrics.value("nodes_total", &[]), Some(7.0));
        assert_eq!(metrics.series().len(), 3);
    }
}
