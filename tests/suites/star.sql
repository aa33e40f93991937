-- A star: the published `sales` with the public dimensions days, buyers, vendors and parts, joined
-- by commas.  Sensitive: quantity, discount, terms.

-- name: discounted revenue of a year
SELECT SUM(sales.price * sales.discount) AS revenue
FROM sales, days
WHERE sales.day_id = days.day_id AND days.year = 1993 AND sales.discount BETWEEN 1 AND 3 AND sales.quantity < 25;

-- name: discounted revenue of a month
SELECT SUM(s.price * s.discount) AS revenue
FROM sales s, days d
WHERE s.day_id = d.day_id AND d.month_no = 199401 AND s.discount BETWEEN 4 AND 6 AND s.quantity BETWEEN 11 AND 40;

-- name: discounted revenue of some weeks
SELECT SUM(price * discount) AS revenue, COUNT(*) AS sold
FROM sales, days
WHERE sales.day_id = days.day_id AND week BETWEEN 6 AND 18 AND year = 1994 AND discount > 4 AND quantity > 20;

-- name: revenue by year and brand of a category
SELECT SUM(price - cost) AS margin, year, brand
FROM sales, days, parts, vendors
WHERE sales.day_id = days.day_id AND sales.part_id = parts.part_id AND sales.vendor_id = vendors.vendor_id
  AND parts.category = 'M#12' AND vendors.region = 'america'
GROUP BY year, brand ORDER BY year, brand;

-- name: units by year and brand of some brands
SELECT SUM(quantity) AS units, d.year, p.brand
FROM sales AS f, days AS d, parts AS p, vendors AS v
WHERE f.day_id = d.day_id AND f.part_id = p.part_id AND f.vendor_id = v.vendor_id
  AND p.brand BETWEEN 'M#221' AND 'M#224' AND v.region = 'asia'
GROUP BY d.year, p.brand ORDER BY d.year, p.brand;

-- name: cash revenue by year of a maker
SELECT d.year, SUM(f.price) AS revenue
FROM sales f, days d, parts p, vendors v
WHERE f.day_id = d.day_id AND f.part_id = p.part_id AND f.vendor_id = v.vendor_id
  AND p.maker = 'M#3' AND v.region = 'europe' AND f.terms = 'cash'
GROUP BY d.year ORDER BY d.year;

-- name: trade between nations
SELECT buyers.nation AS buyer, vendors.nation AS vendor, year, SUM(price) AS revenue
FROM buyers, sales, vendors, days
WHERE sales.buyer_id = buyers.buyer_id AND sales.vendor_id = vendors.vendor_id AND sales.day_id = days.day_id
  AND buyers.region = 'asia' AND vendors.region = 'asia' AND year >= 1993 AND year <= 1996
GROUP BY buyers.nation, vendors.nation, year ORDER BY year ASC, revenue DESC;

-- name: trade between cities on credit
SELECT b.region AS buyer, v.nation AS vendor, COUNT(*) AS sold
FROM buyers b, sales s, vendors v, days d
WHERE s.buyer_id = b.buyer_id AND s.vendor_id = v.vendor_id AND s.day_id = d.day_id
  AND v.region = 'europe' AND s.terms = 'credit' AND d.year BETWEEN 1993 AND 1995
GROUP BY b.region, v.nation ORDER BY b.region, v.nation;

-- name: terms by year in two nations
SELECT d.year, s.terms, COUNT(*) AS sold, SUM(s.price) AS revenue
FROM sales s, days d, buyers b
WHERE s.day_id = d.day_id AND s.buyer_id = b.buyer_id AND (b.nation = 'japan' OR b.nation = 'india')
GROUP BY d.year, s.terms ORDER BY d.year, s.terms;

-- name: one month between two cities
SELECT buyers.city, vendors.nation, COUNT(*) AS sold, SUM(price) AS revenue
FROM buyers, sales, vendors, days
WHERE sales.buyer_id = buyers.buyer_id AND sales.vendor_id = vendors.vendor_id AND sales.day_id = days.day_id
  AND buyers.city IN ('france0', 'poland1') AND vendors.region = 'europe' AND month = 'Dec1995'
GROUP BY buyers.city, vendors.nation ORDER BY buyers.city, vendors.nation;

-- name: profit by year and nation
SELECT d.year, b.nation, SUM(s.price - s.cost) AS profit
FROM days d, buyers b, vendors v, parts p, sales s
WHERE s.buyer_id = b.buyer_id AND s.vendor_id = v.vendor_id AND s.part_id = p.part_id AND s.day_id = d.day_id
  AND b.region = 'america' AND v.region = 'america' AND (p.maker = 'M#1' OR p.maker = 'M#2')
GROUP BY d.year, b.nation ORDER BY d.year, b.nation;

-- name: profit on lease by year, region and maker
SELECT d.year, v.region, p.maker, SUM(s.price - s.cost) AS profit
FROM days d, vendors v, parts p, sales s
WHERE s.vendor_id = v.vendor_id AND s.part_id = p.part_id AND s.day_id = d.day_id
  AND s.terms = 'lease' AND d.year IN (1995, 1996) AND p.maker IN ('M#1', 'M#2')
GROUP BY d.year, v.region, p.maker ORDER BY d.year, v.region, p.maker;

-- name: mean discount by year, nation and category
SELECT d.year, v.nation, p.category, AVG(s.discount) AS discount
FROM days d, buyers b, vendors v, parts p, sales s
WHERE s.buyer_id = b.buyer_id AND s.vendor_id = v.vendor_id AND s.part_id = p.part_id AND s.day_id = d.day_id
  AND v.region = 'africa' AND d.year = 1996 AND p.maker = 'M#1'
GROUP BY d.year, v.nation, p.category ORDER BY d.year, v.nation, p.category;
