package payment

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// Provider stands for the outside service: it charges a key once, and answers
// again with the same charge. It refuses a fencing number lower than one that
// it has seen for the key.
type Provider struct {
	// Charged is called when a card was charged, before the service answers. It
	// may be nil.
	Charged func()

	mu      sync.Mutex
	charges map[string]string // by key
	fences  map[string]int
}

// Charges returns how many times cards were charged.
func (p *Provider) Charges() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges)
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	fence, err := strconv.Atoi(r.Header.Get("Fencing-Number"))
	var o Order
	if r.Method != http.MethodPost || r.URL.Path != "/charges" || key == "" || err != nil || json.NewDecoder(r.Body).Decode(&o) != nil {
		http.Error(w, "want POST /charges with an order, Idempotency-Key and Fencing-Number", http.StatusBadRequest)
		return
	}
	if o.Amount <= 0 {
		http.Error(w, "declined", http.StatusPaymentRequired)
		return
	}
	charge, fresh, ok := p.charge(key, fence)
	if !ok {
		http.Error(w, "a later runner has been here", http.StatusConflict)
		return
	}
	if fresh && p.Charged != nil {
		p.Charged()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Receipt{Charge: charge}) // whoever has gone asks again
}

func (p *Provider) charge(key string, fence int) (charge string, fresh, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.charges == nil {
		p.charges, p.fences = map[string]string{}, map[string]int{}
	}
	if fence < p.fences[key] {
		return "", false, false
	}
	p.fences[key] = fence
	charge, known := p.charges[key]
	if !known {
		charge = fmt.Sprintf("charge-%d", len(p.charges)+1)
		p.charges[key] = charge
	}
	return charge, !known, true
}
