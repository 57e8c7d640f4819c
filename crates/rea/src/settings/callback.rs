//! How callbacks are sent: the secrets that sign them, and where they may go.

use std::path::Path;

use super::{BadSetting, Key, Resolved, bad, secret_file};
use crate::callback::Callbacks;
use crate::callback::address::Allowed;
use crate::callback::sign::Secrets;

/// How to turn callbacks on.
pub const CALLBACK_RECIPE: &str =
    "make a secret: rea callback secret --file rea.callback; then: serve.callback_secret_file = \"rea.callback\"";

/// The secrets that sign callbacks, as they stand in their file now.
///
/// # Errors
/// It can't be read, others can read it, or it has no good secret.
pub fn callback_secrets(file: &Path) -> Result<Secrets, BadSetting> {
    let text = secret_file::read(file, "the file of callback secrets", CALLBACK_RECIPE)?;
    Secrets::parse(&text).or_else(|wrong| bad(format!("{}: {wrong}", file.display()), CALLBACK_RECIPE))
}

/// How callbacks are sent; `None` = they are off.
pub(super) fn of(all: &Resolved) -> Result<Option<Callbacks>, BadSetting> {
    let allowed = match Allowed::parse(&all.list(Key::CallbackAllow)) {
        Ok(allowed) => allowed,
        Err(wrong) => {
            let hint = "networks are written as 10.0.0.0/8, single addresses as 127.0.0.1";
            return all.refuse(Key::CallbackAllow, &format!("serve.callback_allow: {wrong}"), hint);
        }
    };
    let file = all.path(Key::CallbackSecretFile);
    Ok(file.map(|secret_file| Callbacks { secret_file, allowed }))
}
