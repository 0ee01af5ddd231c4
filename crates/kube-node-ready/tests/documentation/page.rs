//! A Markdown page, as far as the tests look at it.

use std::collections::BTreeSet;

/// One page.
pub(crate) struct Page {
    /// Its path, from the root of the checkout.
    pub(crate) path: String,
    /// Its fenced blocks.
    pub(crate) blocks: Vec<Block>,
    /// Everything else: blocks are empty lines here.
    prose: String,
}

/// A fenced block.
pub(crate) struct Block {
    /// The line on which it begins.
    pub(crate) line: usize,
    /// The language after the opening fence.
    pub(crate) language: String,
    /// Its content.
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (mut blocks, mut prose) = (Vec::<Block>::new(), String::new());
        let mut is_open = false;
        for (number, line) in text.lines().enumerate() {
            match line.trim_start().strip_prefix("```") {
                Some(language) if !is_open => {
                    let language = language.trim().to_owned();
                    blocks.push(Block { line: number + 1, language, text: String::new() });
                    is_open = true;
                }
                Some(_) => is_open = false,
                None if is_open => {
                    let block = blocks.last_mut().unwrap();
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                None => prose.push_str(line),
            }
            prose.push('\n');
        }
        assert!(!is_open, "{path}: a block is not closed");
        Self { path: path.to_owned(), blocks, prose }
    }

    /// Blocks with commands.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| ["sh", "bash", "console"].contains(&block.language.as_str()))
    }

    /// Inline code in the prose.
    pub(crate) fn codes(&self) -> Vec<&str> {
        self.prose.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2)).collect()
    }

    /// The targets of its links.
    pub(crate) fn links(&self) -> Vec<String> {
        let without_code = |paragraph: &str| paragraph.split('`').step_by(2).collect::<Vec<_>>().concat();
        let prose: String = self.prose.split("\n\n").map(without_code).collect::<Vec<_>>().join("\n\n");
        let ends = prose.split("](").skip(1);
        ends.filter_map(|end| Some(end.split_once(')')?.0.to_owned())).collect()
    }

    /// The anchors of its headings, as GitHub names them.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for heading in self.prose.lines().filter(|line| line.starts_with('#')) {
            let slug = slug(heading.trim_start_matches('#').trim());
            let names = std::iter::once(slug.clone()).chain((1..).map(|number| format!("{slug}-{number}")));
            let free = names.into_iter().find(|name| !anchors.contains(name)).unwrap();
            anchors.insert(free);
        }
        anchors
    }

    /// Inline code in the first cells of the tables below a heading.
    pub(crate) fn first_cells(&self, heading: &str) -> Vec<&str> {
        let below =
            self.prose.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading).skip(1);
        below
            .take_while(|line| !line.starts_with('#'))
            .filter_map(|line| line.strip_prefix('|')?.split('|').next())
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .collect()
    }
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[test]
fn a_page_is_taken_apart() {
    let page =
        Page::new("a.md", "# A `b`, c!\n[`x`](y.md) and `z\nw`\n\n```sh\nmake `no`\n```\n## A b c\n[t](u)\n");
    assert_eq!(page.codes(), ["b", "x", "z\nw"]);
    assert_eq!(page.links(), ["y.md", "u"]);
    assert_eq!(page.anchors().into_iter().collect::<Vec<_>>(), ["a-b-c", "a-b-c-1"]);
    assert_eq!((page.blocks[0].line, page.blocks[0].text.as_str()), (5, "make `no`\n"));
}
