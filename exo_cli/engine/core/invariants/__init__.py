"""Invariants: what must hold of a log and of the state that it adds up to, and what is said when it does not.

A *hard* rule judges one event against the state before it: our decider never lets such an event into a log. A
*settling* rule judges one thing in the state, and is a pair: `touched` names the ids that an event may make true or
false, `holds` tells of one id whether it is as it must be. So a check costs the same however large the state is;
`rules.broken` is the full scan, the law for the pairs.

What a settling rule is about takes time in a healthy cluster (an instance is deleted first, its runners shut down after
it), so it is a finding only after its deadline by the log's own clock. Logs without times have no deadlines: there a
runner has until its next status, anything else until the end of the log. What no healthy cluster can do (a status of a
runner that nothing in the state explains) is a finding at once.

`rules` has the rules, `findings` what is said, `checks` brings them together over a log. A new rule is a row in
`rules.RULES` or `rules.HARD`.
"""
