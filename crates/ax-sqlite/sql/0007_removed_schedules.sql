-- What schedules were declared with that a person has removed: the same words do not bring one back.
CREATE TABLE removed_schedules (
    name        TEXT    PRIMARY KEY,
    declared_by INTEGER NOT NULL,
    declared    TEXT    NOT NULL
) WITHOUT ROWID;
