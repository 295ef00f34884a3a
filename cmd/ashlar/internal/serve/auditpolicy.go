package serve

import (
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// auditLevel is the detail of the audit log for a type.
type auditLevel string

const (
	auditNone     auditLevel = "none"
	auditMetadata auditLevel = "metadata"
	auditPayload  auditLevel = "payload"
)

// auditRule is the level of the types that match a pattern.
type auditRule struct {
	types storage.UnversionedType
	level auditLevel
}

// auditPolicy are the rules of an audit log. The first match counts.
type auditPolicy []auditRule

// parseAuditPolicy parses TYPE=LEVEL.
func parseAuditPolicy(texts []string) (auditPolicy, error) {
	var rules auditPolicy
	for _, text := range texts {
		pattern, level, _ := strings.Cut(text, "=")
		types, err := parseTypePattern(pattern)
		if err != nil {
			return nil, fmt.Errorf("--audit-policy %s: %w", text, err)
		}
		switch rule := (auditRule{types, auditLevel(level)}); rule.level {
		case auditNone, auditMetadata, auditPayload:
			rules = append(rules, rule)
		default:
			return nil, fmt.Errorf("--audit-policy %s: expected TYPE=none, TYPE=metadata or TYPE=payload", text)
		}
	}
	return rules, nil
}

// levelOf returns the level of a type.
func (p auditPolicy) levelOf(t *resourcepb.Type) auditLevel {
	for _, r := range p {
		if matchesPattern(r.types, t) {
			return r.level
		}
	}
	return auditMetadata
}
