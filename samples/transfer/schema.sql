CREATE TABLE IF NOT EXISTS accounts (
  id      text PRIMARY KEY,
  balance bigint NOT NULL
);

-- One row for each time that money has moved. The column transfer is not
-- unique, so that money which moves twice would be seen here.
CREATE TABLE IF NOT EXISTS transfers (
  entry    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  transfer text NOT NULL,
  payer    text NOT NULL REFERENCES accounts,
  payee    text NOT NULL REFERENCES accounts,
  amount   bigint NOT NULL CHECK (amount > 0)
);

INSERT INTO accounts (id, balance) VALUES ('alice', 1000), ('bob', 1000) ON CONFLICT DO NOTHING;
