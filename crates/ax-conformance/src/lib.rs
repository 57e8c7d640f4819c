//! ax-conformance
