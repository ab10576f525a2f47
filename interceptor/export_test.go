package interceptor

// Running reports whether the plugin holds anything open.
func (p *Plugin) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine != nil
}
