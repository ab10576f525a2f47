package ledger

// PruneSQL returns the settings and the statement of a batch.
func (s *Store) PruneSQL() (settings, statement string) { return pruneSettings, s.platform.prune }
