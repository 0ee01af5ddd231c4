//! Links within the checkout.

use std::collections::BTreeSet;

use crate::page::Page;
use crate::root;

/// A link, split into the file it leads to and its anchor.
fn target(page: &Page, link: &str) -> Option<(String, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (link, None),
    };
    let path = if path.is_empty() { page.path.clone() } else { joined(&page.path, path) };
    Some((path, anchor))
}

/// Resolves a relative path on a page.
fn joined(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Links that lead nowhere.
pub(crate) fn broken(page: &Page, pages: &[Page]) -> Vec<String> {
    let is_broken = |link: &String| {
        let Some((path, anchor)) = target(page, link) else { return false };
        let leads_out = path.split('/').any(|part| part == "..");
        let known = pages.iter().chain([page]).find(|known| known.path == path);
        let has_anchor = |anchor: &String| known.is_some_and(|known| known.anchors().contains(anchor));
        let exists = known.is_some() || root().join(&path).exists();
        leads_out || !exists || anchor.is_some_and(|anchor| !has_anchor(&anchor))
    };
    page.links().into_iter().filter(is_broken).map(|link| format!("the link {link} is broken")).collect()
}

/// All files that can be reached by links from a page, from page to page.
pub(crate) fn reachable(start: &str, pages: &[Page]) -> BTreeSet<String> {
    let (mut found, mut next) = (BTreeSet::new(), vec![start.to_owned()]);
    while let Some(path) = next.pop() {
        if !found.insert(path.clone()) {
            continue;
        }
        if let Some(page) = pages.iter().find(|page| page.path == path) {
            let linked = page.links().into_iter().filter_map(|link| Some(target(page, &link)?.0));
            // A folder is shown by its README.
            next.extend(
                linked
                    .flat_map(|path| [format!("{path}/README.md"), path])
                    .filter(|path| root().join(path).exists()),
            );
        }
    }
    found
}

#[test]
fn what_leads_nowhere_is_found() {
    let page = crate::sample(
        "# A heading\n[a](config.md#worker) [b](#a-heading) [c](../README.md) [d](https://example.com/x#y)\n\
         [e](config.md#wroker) [f](#an-heading) [g](../REDME.md) [h](../../outside) [i](../LICENSE#top)",
    );
    let found: Vec<String> = broken(&page, &crate::pages())
        .iter()
        .map(|what| what.split(' ').nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(found, ["config.md#wroker", "#an-heading", "../REDME.md", "../../outside", "../LICENSE#top"]);
}

#[test]
fn pages_are_found_from_page_to_page() {
    let page = |path, text| Page::new(path, text);
    let pages = [
        page("README.md", "[a](docs/design.md)"),
        page("docs/design.md", "[b](../examples)"),
        page("examples/README.md", "[c](values-minimal.yaml)"),
        page("docs/checks.md", ""),
    ];
    let found: Vec<String> = reachable("README.md", &pages).into_iter().collect();
    assert_eq!(
        found,
        ["README.md", "docs/design.md", "examples", "examples/README.md", "examples/values-minimal.yaml"]
    );
}
