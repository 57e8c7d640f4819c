//! ax-sqlite
