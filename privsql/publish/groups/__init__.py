"""Personal groups.

units       whom a row is about
chisquare   public values that differ in no sensitive one
merging     values merged
numbering   tuples numbered, rows marked
group_caps  caps of groups (SPS)
sampling    groups cut down to their caps
"""
