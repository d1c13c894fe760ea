//! The catalogue is complete, and everything in it can be found.

use errors::{CATALOGUE, CodeKind, Unknown, entries, entry, find};

fn codes(topic: CodeKind) -> Vec<u32> {
    entries(topic).map(|entry| entry.code).collect()
}

#[test]
fn every_code_of_the_c_headers_has_an_entry() {
    assert_eq!(codes(CodeKind::Completion), (0..=23).collect::<Vec<_>>());
    assert_eq!(codes(CodeKind::Event), (0..=19).collect::<Vec<_>>());
    assert_eq!(codes(CodeKind::Connection), (0..=15).collect::<Vec<_>>());
    assert_eq!(codes(CodeKind::Nak), [0x20, 0x60, 0x61, 0x62, 0x63, 0x64]);
    // There is no reason 34.
    let reasons: Vec<u32> = (1..=33).chain([35]).collect();
    assert_eq!(codes(CodeKind::Reject), reasons);
}

#[test]
fn every_entry_says_something_in_whole_sentences() {
    for entry in CATALOGUE.into_iter().flatten() {
        let name = entry.c_name;
        assert!(entry.meaning.ends_with('.'), "{name}: {}", entry.meaning);
        assert!(!entry.causes.is_empty(), "{name} has no cause");
        for cause in entry.causes {
            assert!(cause.reason.ends_with('.'), "{name}: {}", cause.reason);
            let ends = [".", "?"].iter().any(|end| cause.remedy.ends_with(end));
            assert!(ends, "{name}: {}", cause.remedy);
        }
    }
}

#[test]
fn an_entry_is_found_by_number_and_by_every_name_it_has() {
    let retries = entry(CodeKind::Completion, 12).expect("there is one");
    for code in [
        "12",
        "0xc",
        "IBV_WC_RETRY_EXC_ERR",
        "retry_exc_err",
        "RetriesExhausted",
        "retries-exhausted",
        "transport retry counter exceeded",
    ] {
        let found = find(CodeKind::Completion, code).expect(code);
        assert!(std::ptr::eq(found, retries), "{code}");
    }
    assert_eq!(
        find(CodeKind::Errno, "-110").expect("known").c_name,
        "ETIMEDOUT"
    );
    assert_eq!(find(CodeKind::Errno, "einval").expect("known").code, 22);
    assert_eq!(find(CodeKind::Reject, "28").expect("known").code, 28);
    assert_eq!(
        find(CodeKind::Connection, "rejected").expect("known").code,
        8
    );
}

#[test]
fn every_text_of_the_c_library_leads_to_its_entry() {
    let text = include_str!("../../capi/src/verbs/strings.rs");
    let texts_of = |array: &str| -> Vec<&str> {
        let (_, rest) = text.split_once(array).expect("the array");
        let (rows, _) = rest.split_once("];").expect("its end");
        rows.split('"').skip(1).step_by(2).collect()
    };
    for (topic, array) in [
        (CodeKind::Completion, "const STATUS: [&CStr; 24]"),
        (CodeKind::Event, "const EVENTS: [&CStr; 20]"),
    ] {
        for (code, text) in texts_of(array).into_iter().enumerate() {
            assert_eq!(find(topic, text).expect(text).code as usize, code, "{text}");
        }
    }
}

#[test]
fn a_nak_is_found_by_its_syndrome_or_its_code() {
    for code in ["0x62", "98", "2", "remote access error"] {
        assert_eq!(find(CodeKind::Nak, code).expect(code).code, 0x62);
    }
    assert_eq!(
        find(CodeKind::Nak, "0x2e").expect("an RNR timer").code,
        0x20
    );
}

#[test]
fn an_unknown_code_is_answered_with_the_known_ones() {
    let topic = "wcc".parse::<CodeKind>().expect_err("no such kind");
    assert!(
        topic
            .to_string()
            .contains("wc, event, nak, cm, reject, errno")
    );
    let code = find(CodeKind::Completion, "99").expect_err("no such code");
    assert_eq!(code, Unknown::Code(CodeKind::Completion, "99".to_owned()));
    assert!(code.to_string().contains("roci explain wc"));
}
