package heed

func (r *dialectReader) emitForm(g *quotaGroup, p Policy, l ServiceLimit) {}
