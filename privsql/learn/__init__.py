"""Classifiers built from reconstructed counts (OLAP 6.3).

No row is ever looked at: a tree or a naive Bayes classifier needs nothing but counts, and
those are asked of the query layer, with the conditions of the path to a node in WHERE:

    SELECT target, column, COUNT(*) FROM t WHERE <path> GROUP BY target, column

So perturbed rows are not sorted into branches, which would train on noise; every count of every
node is reconstructed from the whole release, and what the release refuses stays refused.

    counts      counts asked of a session          features  columns as classes
    splits      impurity of a split                 node      a node of a tree
    classifier  what both classifiers share         tree, bayes

    from privsql.learn import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=3).fit("clinic.duckdb", target="illness")
    print(tree)
    tree.predict({"city": ["north"], "age": [40]})
"""

from privsql.learn.bayes import NaiveBayes
from privsql.learn.tree import DecisionTreeClassifier

__all__ = ["DecisionTreeClassifier", "NaiveBayes"]
