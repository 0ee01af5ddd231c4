use super::*;

fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
    let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    selector.parse::<Selector>().unwrap().matches(&labels)
}

fn refusal(selector: &str) -> String {
    selector.parse::<Selector>().unwrap_err().to_string()
}

#[test]
fn equality() {
    for selector in ["a=b", "a==b", " a = b ", "a == b"] {
        assert!(selects(selector, &[("a", "b")]), "{selector}");
        assert!(!selects(selector, &[("a", "c")]), "{selector}");
        assert!(!selects(selector, &[]), "{selector}");
    }
    assert!(selects("a=", &[("a", "")]));
    assert!(!selects("a=", &[]));
}

#[test]
fn inequality_selects_what_has_no_such_key() {
    for selector in ["a!=b", "a != b", "a notin (b)", "a notin (b,x)"] {
        assert!(!selects(selector, &[("a", "b")]), "{selector}");
        assert!(selects(selector, &[("a", "c")]), "{selector}");
        assert!(selects(selector, &[]), "{selector}");
    }
}

#[test]
fn presence() {
    assert!(selects("a", &[("a", "")]));
    assert!(!selects("a", &[("b", "")]));
    assert!(selects("!a", &[("b", "")]));
    assert!(!selects("! a", &[("a", "x")]));
}

#[test]
fn sets() {
    for selector in ["a in (x,y)", "a in ( x , y )", "a  in(x,y)"] {
        assert!(selects(selector, &[("a", "y")]), "{selector}");
        assert!(!selects(selector, &[("a", "z")]), "{selector}");
        assert!(!selects(selector, &[]), "{selector}");
    }
    assert!(selects("a in (,x)", &[("a", "")]));
    // `in` is an operator only between a key and a list.
    assert!(selects("in,notin=in", &[("in", ""), ("notin", "in")]));
}

#[test]
fn a_comma_means_and() {
    let selector = "example.com/a=b,c in (d,e),!f";
    assert!(selects(selector, &[("example.com/a", "b"), ("c", "e")]));
    assert!(!selects(selector, &[("example.com/a", "b")]));
    assert!(!selects(selector, &[("example.com/a", "b"), ("c", "e"), ("f", "")]));
}

#[test]
fn the_text_comes_back() {
    for text in ["a=b", "a  in (x, y),!b", "a!=b"] {
        let selector: Selector = text.parse().unwrap();
        assert_eq!(selector.to_string(), text);
        assert_eq!(serde_json::to_value(&selector).unwrap(), text);
        assert_eq!(serde_json::from_value::<Selector>(text.into()).unwrap(), selector);
    }
    assert_eq!(Selector::equals("a", "b"), "a=b".parse().unwrap());
}

#[test]
fn what_is_not_a_selector_is_refused() {
    assert_eq!(refusal(""), "an empty selector would match everything");
    assert_eq!(refusal("  "), "an empty selector would match everything");
    assert_eq!(refusal("a=b,"), "there is nothing on one side of a comma");
    assert_eq!(refusal("a,,b"), "there is nothing on one side of a comma");
    assert_eq!(refusal("a b"), r#""a b" is not the key of a label"#);
    assert_eq!(refusal("a=b=c"), r#""b=c" is not the value of a label"#);
    assert_eq!(refusal("=b"), r#""" is not the key of a label"#);
    assert_eq!(refusal("!"), r#""" is not the key of a label"#);
    assert_eq!(refusal("!a=b"), r#""!a" is not the key of a label"#);
    assert_eq!(refusal("a in x"), r#""a in x" is not the key of a label"#);
    assert_eq!(refusal("a in (x"), r#""a in (x" does not end with a closing parenthesis"#);
    assert_eq!(refusal("a in (x) y"), r#""a in (x) y" does not end with a closing parenthesis"#);
    assert_eq!(refusal("a (x)"), r#""a (x)" is neither "key in (…)" nor "key notin (…)""#);
    assert_eq!(refusal("a in ((x))"), r#""(x)" is not the value of a label"#);
    assert_eq!(refusal("A/b=c"), r#""A/b" is not the key of a label"#);
    let long = "v".repeat(64);
    assert_eq!(refusal(&format!("a={long}")), format!("{long:?} is not the value of a label"));
}
