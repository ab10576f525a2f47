package ledger

// QuotaPlan and QuotaStatement are what the quota asks PostgreSQL.
const QuotaPlan = quotaPlan

func (s *Store) QuotaStatement(o Owner) string { return s.statements(o).quota }
