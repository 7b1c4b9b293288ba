"""Who changed what: a record of every operator's change, written before it is made."""
