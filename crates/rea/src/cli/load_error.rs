//! Why the workers did not start, for the person who started the server: said once, with a hint that fits.

use super::{Exit, Failure};

/// What stands before the error of code that can't be loaded; the traceback follows it after an empty line.
const CODE: &str = "the code could not be loaded: ";

/// The failure; `text` is the pool's own.
pub(super) fn failure(text: &str) -> Failure {
    let Some(error) = text.strip_prefix(CODE) else {
        // Such as a Python that is not there; the text says what to do.
        return Failure::new(Exit::Usage, format!("the workers can't start: {text}"));
    };
    let kind = error.split([':', '\n']).next().unwrap_or_default();
    let failure = Failure::new(Exit::Usage, format!("{CODE}{}", once(error, kind)));
    match kind {
        // It shows how a task looks.
        "NoTasks" => failure,
        "ModuleNotFoundError" => failure.hint("install the module for this Python, or name another one with --python"),
        _ => failure.hint("mend the code; no job was touched"),
    }
}

/// Without the repetition: a traceback ends with the error that stands before it.
fn once<'a>(error: &'a str, kind: &str) -> &'a str {
    match error.rfind(&format!("\n{kind}")) {
        Some(at) if !kind.is_empty() => error[..at].trim_end(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_said_once_and_hinted_at_by_its_kind() {
        let of = |text: &str| failure(&format!("{CODE}{text}"));
        let syntax = of(
            "SyntaxError: invalid syntax (bad.py, line 1)\n\n  File \"bad.py\", line 1\n    def x(:\n\nSyntaxError: invalid syntax",
        );
        assert_eq!(syntax.message.matches("SyntaxError").count(), 1, "{}", syntax.message);
        assert!(syntax.message.ends_with("def x(:") && syntax.hint.unwrap().contains("mend the code"));
        let module = of(
            "ModuleNotFoundError: No module named 'x'\n\nTraceback\n  import x\nModuleNotFoundError: No module named 'x'",
        );
        assert_eq!(module.message.matches("No module").count(), 1, "{}", module.message);
        assert!(module.hint.unwrap().contains("--python"));
        let empty =
            of("NoTasks: no task found in none.py.\n\n    @task\n\nNoTasks: no task found in none.py.\n\n    @task");
        assert_eq!((empty.message.matches("@task").count(), empty.hint), (1, None), "{}", empty.message);
        let missing = failure("python9 was not found on PATH. Install Python 3.9 or later, or name one with --python");
        assert_eq!((missing.message.contains("python9"), missing.hint), (true, None));
    }
}
