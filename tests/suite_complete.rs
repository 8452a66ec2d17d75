//! No kind is missing from the suite, and no case from a kind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "support/suite.rs"]
mod suite;
mod support;

use std::collections::HashSet;

use redlatch::Kind;

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn every_kind_is_a_subject_of_the_suite_once() {
    for &kind in Kind::ALL {
        let subjects = suite::ALL.iter().filter(|subject| subject.kind == kind).count();
        assert_eq!(subjects, 1, "{kind:?} is in tests/support/suite.rs {subjects} times");
    }
    assert_eq!(suite::ALL.len(), Kind::ALL.len());
}

#[test]
fn the_list_of_all_kinds_has_all_kinds() {
    let source = read("src/kind.rs");
    let variants = source.split_once("pub enum Kind {").unwrap().1.split_once('}').unwrap().0;
    let variants: HashSet<String> = variants
        .lines()
        .map(|line| line.trim().trim_end_matches(',').to_owned())
        .filter(|line| line.starts_with(char::is_uppercase))
        .collect();
    let listed: HashSet<String> = Kind::ALL.iter().map(|kind| format!("{kind:?}")).collect();
    assert_eq!(listed, variants);
}

#[test]
fn every_way_to_get_a_lock_from_a_client_is_a_subject() {
    let (client, suite) = (read("src/client.rs"), read("tests/support/suite.rs"));
    let mut ways: Vec<&str> = client
        .split("    pub fn ")
        .skip(1)
        .filter_map(|function| function.split_once("(&self, name: impl Into<String>)"))
        .map(|(name, _)| name)
        .collect();
    ways.dedup();
    assert!(ways.len() >= 7, "{ways:?}");
    for way in ways {
        assert!(suite.contains(&format!("client.{way}(name)")), "`Client::{way}` is no subject of the suite");
    }
}

#[test]
fn every_subject_has_the_suite_run_over_it_in_its_file() {
    for subject in suite::ALL {
        // `NonReentrantFair` is the subject NON_REENTRANT_FAIR, in the module `non_reentrant_fair`.
        let mut module = String::new();
        for letter in format!("{:?}", subject.kind).chars() {
            if letter.is_uppercase() && !module.is_empty() {
                module.push('_');
            }
            module.push(letter.to_ascii_lowercase());
        }
        let file = format!("tests/{}.rs", subject.file);
        let line = format!("\nsuite::suite!({module}, {});\n", module.to_uppercase());
        assert!(read(&file).contains(&line), "{file} has no line `{}`", line.trim());
    }
}

#[test]
fn opt_outs_name_cases_and_have_a_reason() {
    for subject in suite::ALL {
        for (case, reason) in subject.opts_out {
            assert!(suite::CASES.contains(case), "{:?} opts out of `{case}`, which is no case", subject.kind);
            assert!(reason.len() > 10, "{:?} opts out of {case} for no reason", subject.kind);
        }
    }
}

#[test]
fn every_case_is_in_the_list() {
    let list: HashSet<&str> = suite::CASES.iter().copied().collect();
    assert_eq!(list.len(), suite::CASES.len(), "a case is in the list twice");
    for group in ["cancel", "ends", "exclusion", "lease", "loss", "outcome", "reentry", "refusal", "wait"] {
        let source = read(&format!("tests/support/suite/{group}.rs"));
        for case in source.split("pub async fn ").skip(1) {
            let name = case.split('(').next().unwrap();
            assert!(list.contains(name), "{group}::{name} is run for nobody");
        }
    }
}

#[tokio::test]
async fn an_opt_out_that_is_not_needed_fails() {
    let case = suite::NON_REENTRANT.opts_out[0].0;
    let needless = tokio::spawn(suite::run(&suite::NON_REENTRANT, case, async {}));
    assert!(needless.await.is_err_and(|e| e.is_panic()), "the case has passed");
    let needed = async { std::panic::resume_unwind(Box::new("the kind does not keep to it")) };
    suite::run(&suite::NON_REENTRANT, case, needed).await;
}
