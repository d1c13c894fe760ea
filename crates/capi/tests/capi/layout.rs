//! Every structure is laid out as the C compiler lays it out.

use std::fmt::Write;
use std::process::Command;

use rocinante_c::Layout;

use crate::support;

/// What a C program prints for these structures.
fn program(layouts: &[Layout]) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         #include <infiniband/sa.h>\n#include <rdma/rdma_cma.h>\n#include <rdma/ib_user_verbs.h>\n\
         #include <rdma/ib_user_sa.h>\nint main(void) {\n",
    );
    for layout in layouts {
        let name = layout.name;
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof({name}));").expect("a string");
        for (field, _) in &layout.fields {
            let field = field.trim_start_matches("r#");
            writeln!(
                text,
                "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));"
            )
            .expect("a string");
        }
    }
    text + "return 0;\n}\n"
}

/// What it should print.
fn expected(layouts: &[Layout]) -> String {
    let mut text = String::new();
    for layout in layouts {
        writeln!(text, "{} {}", layout.name, layout.size).expect("a string");
        for (field, offset) in &layout.fields {
            let field = field.trim_start_matches("r#");
            writeln!(text, "{}.{field} {offset}", layout.name).expect("a string");
        }
    }
    text
}

#[test]
fn structure_layouts_equal_those_of_the_headers() {
    if !support::can_compile() {
        return;
    }
    let layouts = rocinante_c::layouts();
    assert!(layouts.len() > 50, "only {} structures", layouts.len());
    let directory = support::directory("layout");
    let (source, binary) = (directory.join("layout.c"), directory.join("layout"));
    std::fs::write(&source, program(&layouts)).expect("the directory can be written");
    support::compile(&source, &binary, None);
    let output = Command::new(&binary).output().expect("it was just made");
    let printed = String::from_utf8(output.stdout).expect("names and numbers");
    let expected = expected(&layouts);
    for (c, rust) in printed.lines().zip(expected.lines()) {
        assert_eq!(rust, c, "left: ours, right: the header's");
    }
    assert_eq!(printed, expected);
}
